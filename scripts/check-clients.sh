#!/usr/bin/env bash
# Runs the client matrix: well-known clients, each at a pinned version, against the tiny model that calls a tool. Prints
# a table of chat, stream, tool loop, structured output, responses, errors and usage; every cell must pass, or be out of
# scope with a reason (scripts/clients). Checks custom tools with the openai client, and the fields of all answers
# against the types of the Python clients.
#   scripts/check-clients.sh [SERVE_BINARY]
# Needs Go and python3 with venv. Node comes from PyPI. Installs into HEFT_CI_TOOLS. HEFT_CLIENTS=NAME,... runs some only.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=${HEFT_CI_TOOLS:-$HOME/.cache/heft-ci}/clients
pins=(scripts/clients/requirements.txt scripts/clients/requirements-openai2.txt scripts/clients/package.json)
if ! cat "${pins[@]}" | cmp -s - "$tools/installed"; then
	rm -rf "$tools"
	mkdir -p "$tools/node"
	for venv in "" -openai2; do
		python3 -m venv "$tools/venv$venv"
		"$tools/venv$venv/bin/pip" install -q --no-cache-dir -r "scripts/clients/requirements$venv.txt"
	done
	cp scripts/clients/package.json "$tools/node"
	(cd "$tools/node" && PATH="$tools/venv/bin:$PATH" npm install --silent --no-audit --no-fund)
	cat "${pins[@]}" >"$tools/installed"
fi
cells=$(mktemp)
trap 'rm -f "$cells"' EXIT
export PYTHONDONTWRITEBYTECODE=1 HEFT_NODE_MODULES=$tools/node HEFT_CLIENT_TOOLS=$tools HEFT_CELLS=$cells
scripts/check-tool-loop.sh "${1:-}" bash -c '
	set -eu
	openai2=instructor,litellm,llama-index
	HEFT_CLIENTS=${HEFT_CLIENTS:-!$openai2} "$HEFT_CLIENT_TOOLS/venv/bin/python" scripts/clients/matrix.py run "$HEFT_CELLS"
	HEFT_CLIENTS=${HEFT_CLIENTS:-$openai2} "$HEFT_CLIENT_TOOLS/venv-openai2/bin/python" scripts/clients/matrix.py run "$HEFT_CELLS"
	"$HEFT_CLIENT_TOOLS/venv/bin/node" scripts/clients/matrix.mjs "$HEFT_CELLS"
	[ -n "${HEFT_CLIENTS:-}" ] || "$HEFT_CLIENT_TOOLS/venv/bin/python" scripts/check_custom_tools.py
	[ -n "${HEFT_CLIENTS:-}" ] || "$HEFT_CLIENT_TOOLS/venv/bin/python" scripts/check_answer_types.py
	python3 scripts/clients/matrix.py table "$HEFT_CELLS"'
