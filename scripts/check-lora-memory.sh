#!/usr/bin/env bash
# Fine-tunes a checkpoint with LoRA (train run: rank 16 on every linear map, one sequence of
# 256 tokens, blocks computed again) and fails where that takes more anonymous memory than the
# limit. The base stays in its mapped file: its pages are the system's to take back and do not
# count.
#   scripts/check-lora-memory.sh MODEL_FOLDER [LIMIT_GIB] [STEPS]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lora-run.sh
[ $# -ge 1 ] || { sed -n 2,6p "$0"; exit 2; }
model=$1 limit=${2:-4} steps=${3:-2}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
lora_prepare "$dir"
(lora_run "$dir" "$model" "$dir/out" "$steps") &
pid=$!
peak=0
while kill -0 "$pid" 2>/dev/null; do
	now=$(awk '/^RssAnon/ {print $2}' "/proc/$pid/status" 2>/dev/null || true)
	[ "${now:-0}" -gt "$peak" ] && peak=$now
	sleep 0.02
done
wait "$pid"
ls "$dir/out"
awk -v kib="$peak" -v limit="$limit" 'BEGIN {
	printf "%.2f GiB of anonymous memory at most, limit %g\n", kib / 2^20, limit
	exit kib / 2^20 > limit || kib == 0
}'
