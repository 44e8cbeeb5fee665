#!/usr/bin/env bash
# Measures what 900 idle and slow connections cost 100 fast ones (goal: under 5 % of their tokens per second), and that
# no goroutine, descriptor or memory stays behind. Half a minute on the demo model; wants a quiet machine.
#   scripts/check-connections.sh [SERVE_BINARY [SECONDS [ROUNDS]]]
# Needs python3, and Go without a binary.
set -euo pipefail
cd "$(dirname "$0")/.."
serve=${1:-}
[ $# -eq 0 ] || shift
if [ -z "$serve" ]; then
	serve=$(mktemp -d)/serve
	CGO_ENABLED=0 go build -o "$serve" ./cmd/serve
fi
[ "$(ulimit -n)" -ge 2048 ] || ulimit -n 2048
exec python3 scripts/check_connections.py "$serve" "$@"
