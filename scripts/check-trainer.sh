#!/usr/bin/env bash
# usage: check-trainer.sh [CASE...]
# Builds train and compares its runs with those of transformers' Trainer and PEFT, step by step (check-trainer.py).
# Takes some two minutes, and five with other work beside it. More than 30 minutes are an error.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/trl-python.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/train" ./cmd/train
timeout 1800 "$python" scripts/check-trainer.py "$work/train" "$@"
