#!/usr/bin/env bash
# Talks to the demo model, with a template that has tools, with the Python client of Ollama.
#   scripts/check-ollama-client.sh [SERVE_BINARY]
# needs python3 with the package ollama. The server listens on a free port of the loopback.
set -euo pipefail
cd "$(dirname "$0")/.."
serve=${1:-}
if [ -z "$serve" ]; then
	serve=$(mktemp -d)/serve
	CGO_ENABLED=0 go build -o "$serve" ./cmd/serve
fi
exec python3 scripts/check_ollama_client.py "$serve"
