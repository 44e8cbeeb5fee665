#!/usr/bin/env bash
# Compares coded bfloat16 weights (--compress exact) with plain ones: generated tokens and prompts, in turn, with one and
# two threads. Prints medians and the median of the ratios of pairs. A shared machine's speed wanders: compare only runs
# of one call. Both give the same tokens; tests hold that.
#
#   scripts/bench-coded.sh [--model FOLDER] [--rounds 5] [--threads 1,2] [--prompt 512] [--decode 64] [--json OUT]
#
# Without --model it writes a Llama of normal weights, 1.4 GB, to a temporary folder; that needs numpy.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/serve" ./cmd/serve
"${PYTHON:-python3}" scripts/bench_coded.py "$work/serve" "$work" "$@"
