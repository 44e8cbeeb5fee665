#!/usr/bin/env bash
# Runs a mixed load on a server in a control group whose soft limit walks at random; the hard limit follows 5 s later.
# Prints how soon anonymous memory is under the soft limit, and fails if that takes more than 3 s or a request fails.
# Needs Linux and the right to make control groups (root).
#
#   scripts/soak-pressure.sh [TIME]        default 10m
#
# SOAK_MODEL: a folder to serve (default: a random dense model of 360 MB). SOAK_FLAGS: more flags of serve.
# SOAK_LEAST_MIB, SOAK_MOST_MIB: bounds of the walk (default 230 and 720). SOAK_LIMIT: --max-memory (default 700MiB).
# SOAK_THREADS: default 2.
set -euo pipefail
cd "$(dirname "$0")/.."
SOAK_TIME=${1:-10m} go test -tags soak ./cmd/serve -run TestSoakUnderPressure -count=1 -timeout 60m -v | grep -v 'msg=request'
