#!/usr/bin/env bash
# Runs Claude Code, at a pinned version, through one tool loop against this server.
#   scripts/check-claude-code.sh
# Needs Go and npm. Installs into HEFT_CI_TOOLS.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=${HEFT_CI_TOOLS:-$HOME/.cache/heft-ci}/claude-code
want=@anthropic-ai/claude-code@2.1.330
if [ "$(cat "$tools/installed" 2>/dev/null)" != "$want" ]; then
	command -v npm >/dev/null || { echo "needs npm" >&2; exit 1; }
	rm -rf "$tools"
	mkdir -p "$tools"
	echo '{"private": true}' >"$tools/package.json"
	(cd "$tools" && npm install --silent --no-audit --no-fund "$want")
	echo "$want" >"$tools/installed"
fi
HEFT_REQUIRE=claude-code HEFT_CLAUDE_CODE=$tools/node_modules/.bin/claude go test ./api -run ClaudeCode -count=1 -v
