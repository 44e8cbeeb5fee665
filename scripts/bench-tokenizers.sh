#!/usr/bin/env bash
# Compares the speed of internal/tokenizer with the Python tokenizers library on the vocabularies of the fixtures, in
# turn on the same texts, one thread each: a table of MB/s and ratios, medians of five.
#   HEFT_PYTHON=python-with-tokenizers scripts/bench-tokenizers.sh [VOCABULARY …]
set -euo pipefail
cd "$(dirname "$0")/.."
root=${HEFT_GOLDEN:-../shared/golden}
[ -d "$root" ] || root=testdata/golden
tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
go build -o "$tool/encode" ./scripts/benchtokenizers
exec "${HEFT_PYTHON:-python3}" scripts/bench_tokenizers.py "$tool/encode" "$root/text/tokenizers" "$@"
