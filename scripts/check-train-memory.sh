#!/usr/bin/env bash
# A model larger than memory trains: the same LoRA run (train run, rank 16 on every linear map,
# one sequence of 256 tokens) without a limit and in a control group that holds less than the
# weights, page cache included. Fails unless both leave the same adapter, bit for bit.
#   scripts/check-train-memory.sh MODEL_FOLDER [LIMIT_MIB] [STEPS]
# LIMIT_MIB is half of the weights unless given. LORA_RANK (16) and SEQUENCE (256) say how large the adapter and a batch are. A control group takes root (cgroup v1 or v2);
# without one the script says so and ends with status 3.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lora-run.sh
[ $# -ge 1 ] || { sed -n 2,7p "$0"; exit 2; }
model=$(cd "$1" && pwd) steps=${3:-2}
weights=0
for file in "$model"/*.safetensors; do weights=$((weights + $(stat -Lc %s "$file"))); done
limit=${2:-$((weights / 2 / 1048576))}
[ $((limit * 1048576)) -lt "$weights" ] || { echo "the limit of $limit MiB holds the weights: nothing would be shown"; exit 2; }

root=/sys/fs/cgroup
if [ -d $root/memory ]; then
	group=$root/memory/heft-$$ most=memory.limit_in_bytes peak=memory.max_usage_in_bytes
else
	group=$root/heft-$$ most=memory.max peak=memory.peak
	echo +memory 2>/dev/null >$root/cgroup.subtree_control || true
fi
if ! mkdir "$group" 2>/dev/null || ! echo $((limit * 1048576)) 2>/dev/null >"$group/$most"; then
	rmdir "$group" 2>/dev/null || true
	echo "no control group can be made here (it takes root): nothing was checked"
	exit 3
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"; rmdir "$group" 2>/dev/null || true' EXIT

lora_prepare "$dir"
evict() { # what others have in the page cache is charged to them
	for file in "$model"/*.safetensors; do dd if="$file" iflag=nocache count=0 status=none; done
}
seconds() { local start=$EPOCHREALTIME; "$@" >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }; awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }
free() { (lora_run "$dir" "$model" "$dir/free" "$steps"); }
bound() { (echo "$BASHPID" >"$group/cgroup.procs"; lora_run "$dir" "$model" "$dir/bound" "$steps"); }

evict
alone=$(seconds free)
evict
within=$(seconds bound)
awk -v w="$weights" -v l="$limit" -v p="$(cat "$group/$peak" 2>/dev/null || echo 0)" -v a="$alone" -v b="$within" -v n="$steps" 'BEGIN {
	printf "%d MiB of weights, %d steps: %s s without a limit, %s s within %d MiB, page cache included (at most %d MiB were used)\n", w / 2^20, n, a, b, l, p / 2^20
}'
cmp "$dir/free/adapter_model.safetensors" "$dir/bound/adapter_model.safetensors"
echo "the adapters are the same bit for bit"
