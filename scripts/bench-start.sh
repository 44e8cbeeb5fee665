#!/usr/bin/env bash
# Measures what a start takes: from exec to the first streamed token of a prompt of 8 tokens, with the checkpoint in the
# page cache and without, beside the disk's rate. Medians of REPEATS.
#
#   scripts/bench-start.sh MODEL_DIR [flags of serve…]
#
# The files' pages are let go with posix_fadvise before each cold start, which needs no rights and harms nobody.
set -euo pipefail
model=${1:?a folder with a checkpoint}
shift
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/serve" ./cmd/serve
python3 scripts/bench_start.py "$work/serve" "$model" "$@"
