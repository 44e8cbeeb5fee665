#!/usr/bin/env bash
# Talks to the embedded demo model with the official OpenAI Python client.
#   scripts/check-openai-client.sh [SERVE_BINARY]
# needs python3 with the package openai. The server listens on a free port of the loopback.
set -euo pipefail
cd "$(dirname "$0")/.."
serve=${1:-}
if [ -z "$serve" ]; then
	serve=$(mktemp -d)/serve
	CGO_ENABLED=0 go build -o "$serve" ./cmd/serve
fi
exec python3 scripts/check_openai_client.py "$serve"
