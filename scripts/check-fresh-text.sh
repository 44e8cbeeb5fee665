#!/bin/sh
# Compares random tokenizers with the tokenizers library, and random chat templates with jinja2 as transformers runs it.
#
#   scripts/check-fresh-text.sh SEED [FILES [TEMPLATES]]
#
# PYTHON names an interpreter with transformers. Takes about a minute.
set -eu
cd "$(dirname "$0")/.."
seed=$1 files=${2:-600} templates=${3:-4000} repo=$PWD
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/internal/tokenizer/testdata" "$root/internal/chat/jinja/testdata"
cp go.mod "$root/"
cp internal/chat/jinja/testdata/variables.json "$root/internal/chat/jinja/testdata/"
go test -c -o "$root/tokenizer.test" ./internal/tokenizer
go test -c -o "$root/jinja.test" ./internal/chat/jinja
cd "$root"
"${PYTHON:-python3}" "$repo/scripts/tokenizer_pipelines.py" "$seed" "$files" 10 2>"$root/panics" # the library panics on some files, and says so
"${PYTHON:-python3}" -W ignore "$repo/scripts/template_pipelines.py" "$seed" "$templates" internal/chat/jinja/testdata/expressions.json.gz
(cd internal/tokenizer && "$root/tokenizer.test" -test.run TestPipelines)
(cd internal/chat/jinja && "$root/jinja.test" -test.run TestExpressions)
