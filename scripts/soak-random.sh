#!/usr/bin/env bash
# Serves pairs of random models with random flags at limits from their minimum to some MiB more, while the soft limit
# walks, clients drop requests, and the disk fails, is full or reads less than it was asked for. Fails if an answer differs
# from that of a server without limit, is lost or late, or if memory exceeds the limit.
# Needs Linux and the right to make control groups and to mount (root).
#
#   scripts/soak-random.sh [TIME]        default 150s
#
# SOAK_SEED: the seed of the first round (default: the time); each round prints its own. SOAK_ROUNDS: at most so many.
# SOAK_LOG: a file for the log of the last server.
set -euo pipefail
cd "$(dirname "$0")/.."
SOAK_TIME=${1:-150s} go test -tags soak ./cmd/serve -run TestRandomSoak -count=1 -timeout 30m -v
