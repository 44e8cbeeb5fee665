#!/usr/bin/env bash
# Measures serve batch on weights that stream from the disk: files of 1, 64 and 256 lines, each run at once, in turn. A line has
# a prompt of one token and an answer of --tokens. Prints medians of the tokens per second of all lines, and their ratio to
# one line. Loading is part of each run. The answers of a line must be the same in all files.
#
#   scripts/bench-batch.sh --model FOLDER [--rounds 3] [--tokens 8] [--lines 1,64,256] [-- FLAGS OF SERVE BATCH]
#
# The flags are --device-map disk unless others are given.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/serve" ./cmd/serve
"${PYTHON:-python3}" scripts/bench_batch.py "$work/serve" "$work" "$@"
