#!/usr/bin/env bash
# Measures models that are bigger than their memory, beside llama.cpp where it is there, and prints a table of goals and
# results. Rows that this machine cannot run say why. A shared machine's speed wanders: compare only runs of one call.
#
#   scripts/bench-offload.sh [--only ROW,ROW] [--rounds 5] [--json OUT]
#
# Rows: plan1t, moe32, stream, batch8, prompt2000, plan, big, huge, moe128, pressure. The first two need no peers.
#
# PEERS_DIR    has hf/{mid,big,huge,moe,moe128}, gguf/big-bf16.gguf, bin/diskbw and bin/llama-bench; what is missing is
#              left out. hf/moe is a mixture of 32 experts, 4 a token, 16 layers, 1.9 GB, with random routing
# PEERS_TOOLS  has memlimit.sh, which runs a command in a control group: memlimit.sh 4G COMMAND (needs root)
# RUN          a command that runs each timing, as a lock that keeps the machine quiet
# THREADS      that compute, all cores without it
set -euo pipefail
cd "$(dirname "$0")/.."
export PEERS_DIR="${PEERS_DIR:-}" PEERS_TOOLS="${PEERS_TOOLS:-}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/serve" ./cmd/serve
python3 scripts/bench_offload.py "$work/serve" "$work" "$@"
