#!/usr/bin/env bash
# Runs OpenAI's Codex, at a pinned version, through one tool loop against this server.
#   scripts/check-codex.sh
# Needs Go and npm. Installs into HEFT_CI_TOOLS (420 MB).
set -euo pipefail
cd "$(dirname "$0")/.."
commands=$(scripts/npm-pinned.sh codex @openai/codex@0.171.0)
HEFT_REQUIRE=codex HEFT_CODEX=$commands/codex go test ./api -run Codex -count=1 -v
