#!/usr/bin/env bash
# Talks to the demo model, with a template that has tools, with the official Anthropic Python client.
#   scripts/check-anthropic-client.sh [SERVE_BINARY]
# needs python3 with the package anthropic. The server listens on a free port of the loopback.
set -euo pipefail
cd "$(dirname "$0")/.."
serve=${1:-}
if [ -z "$serve" ]; then
	serve=$(mktemp -d)/serve
	CGO_ENABLED=0 go build -o "$serve" ./cmd/serve
fi
exec python3 scripts/check_anthropic_client.py "$serve"
