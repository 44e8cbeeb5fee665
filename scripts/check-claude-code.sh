#!/usr/bin/env bash
# Runs Claude Code, at a pinned version, through one tool loop against this server.
#   scripts/check-claude-code.sh
# Needs Go and npm. Installs into HEFT_CI_TOOLS.
set -euo pipefail
cd "$(dirname "$0")/.."
commands=$(scripts/npm-pinned.sh claude-code @anthropic-ai/claude-code@2.1.330)
HEFT_REQUIRE=claude-code HEFT_CLAUDE_CODE=$commands/claude go test ./api -run ClaudeCode -count=1 -v
