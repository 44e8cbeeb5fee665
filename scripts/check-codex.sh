#!/usr/bin/env bash
# Runs OpenAI's Codex, at a pinned version, through one tool loop against this server.
#   scripts/check-codex.sh
# Needs Go and npm. Installs into HEFT_CI_TOOLS (420 MB).
set -euo pipefail
cd "$(dirname "$0")/.."
tools=${HEFT_CI_TOOLS:-$HOME/.cache/heft-ci}/codex
want=@openai/codex@0.171.0
if [ "$(cat "$tools/installed" 2>/dev/null)" != "$want" ]; then
	command -v npm >/dev/null || { echo "needs npm" >&2; exit 1; }
	rm -rf "$tools"
	mkdir -p "$tools"
	echo '{"private": true}' >"$tools/package.json"
	(cd "$tools" && npm install --silent --no-audit --no-fund "$want")
	echo "$want" >"$tools/installed"
fi
HEFT_REQUIRE=codex HEFT_CODEX=$tools/node_modules/.bin/codex go test ./api -run Codex -count=1 -v
