#!/usr/bin/env bash
# usage: check-trainer.sh [CASE...]
# Builds train and compares its runs with those of transformers' Trainer and PEFT, step by step: check-trainer.py and, if no
# CASE is named, check-qlora.py. Takes some four minutes, and more with other work beside it. More than 30 minutes for one
# of them are an error.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/trl-python.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/train" ./cmd/train
timeout 1800 "$python" scripts/check-trainer.py "$work/train" "$@"
if [ $# = 0 ]; then
	"$python" -c 'import bitsandbytes, gguf' 2>/dev/null || "$python" -m pip install -q --no-cache-dir bitsandbytes==0.50.2 gguf
	timeout 1800 "$python" scripts/check-qlora.py "$work/train"
fi
