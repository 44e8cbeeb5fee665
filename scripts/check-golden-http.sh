#!/usr/bin/env bash
# Serves every golden model under four placements and compares the tokens of /v1/completions with the reference's.
#   scripts/check-golden-http.sh [SERVE_BINARY]
# Models come from HEFT_GOLDEN, else ../shared/golden, else testdata/golden. Ports are free ones of the loopback.
set -euo pipefail
cd "$(dirname "$0")/.."
serve=${1:-}
if [ -z "$serve" ]; then
	serve=$(mktemp -d)/serve
	CGO_ENABLED=0 go build -o "$serve" ./cmd/serve
fi
root=${HEFT_GOLDEN:-../shared/golden}
[ -d "$root" ] || root=testdata/golden
exec python3 scripts/check_golden_http.py "$serve" "$root/infer/models"
