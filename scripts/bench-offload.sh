#!/usr/bin/env bash
# Measures models that are bigger than their memory, beside llama.cpp where it is there, and prints a table of goals and
# results. Rows that this machine cannot run say why. A shared machine's speed wanders: compare only runs of one call.
#
#   scripts/bench-offload.sh [--only ROW,ROW] [--rounds 5] [--minutes 15] [--use NAME=FOLDER,…] [--json OUT]
#
# Rows, in this order: plan1t, stream, big, batch8, plan, moe128, moe32, prompt2000, huge, pressure. plan1t needs no
# peers. A row that would begin after --minutes is left open. --use runs rows on other models, for a quick check:
# --use mid=tiny,big=tiny.
#
# A line of the table is a row's name, its goal, what was measured, and "met", "not met", or nothing where the goal
# is not a number. "left open" says what is missing. Shares and ratios are medians of --rounds alternating rounds. The
# first and the last line are the machine's load: with a load above its idle level, times mean little; bytes are exact.
# --json writes a list of {row, name, goal, measured, met}, or {row, open}.
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
