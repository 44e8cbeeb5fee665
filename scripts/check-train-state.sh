#!/usr/bin/env bash
# A model whose training state is larger than memory fully fine-tunes: train run --plugin gemini with
# --max-memory keeps weights, gradients and the optimizer's state in a scratch file. Samples the anonymous
# memory of the run and fails if it exceeds the limit. Then runs without a limit, and fails unless both
# leave the same weights bit for bit.
#   scripts/check-train-state.sh MODEL_FOLDER [LIMIT_MIB] [STEPS] [alone]
# LIMIT_MIB is a third of the state (16 bytes per parameter) unless given. "alone" leaves out the run
# without a limit, which takes the whole state of memory. Training state and result go to $TMPDIR.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n 2,9p "$0"; exit 2; }
model=$(cd "$1" && pwd) steps=${3:-2} alone=${4:-}
weights=0
for file in "$model"/*.safetensors; do weights=$((weights + $(stat -Lc %s "$file"))); done
width=4
grep -q '"\(torch_\)\?dtype": *"b\?float16"' "$model/config.json" && width=2
state=$((weights / width * 16 / 1048576))
limit=${2:-$((state / 3))}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -o "$dir/train" ./cmd/train
for i in 1 2 3 4; do
	printf '{"text":"%s"}\n' "$(for j in $(seq 1 40); do printf 'the %d quick brown foxes jump over %d lazy dogs. ' $((i * j)) $((i + j)); done)"
done >"$dir/data.jsonl"

# run OUTPUT FLAGS… trains and leaves the most anonymous memory in MiB in $dir/peak.
run() {
	local out=$1 most=0 now pid
	shift
	"$dir/train" run "$model" --data "$dir/data.jsonl" --output "$out" --sequence 128 --batch 1 --max-steps "$steps" --save-steps -1 \
		--recompute on --json "$@" >"$dir/result" 2>"$dir/log" &
	pid=$!
	while kill -0 "$pid" 2>/dev/null; do
		now=$(awk '/^RssAnon/ { print int($2 / 1024) }' "/proc/$pid/status" 2>/dev/null || true)
		[ "${now:-0}" -le "$most" ] || most=$now
		sleep 0.05
	done
	wait "$pid" || { cat "$dir/log" >&2; exit 1; }
	echo "$most" >"$dir/peak"
}

start=$EPOCHREALTIME
run "$dir/bound" --plugin gemini --max-memory "cpu=${limit}MiB"
peak=$(cat "$dir/peak")
awk -v s="$state" -v l="$limit" -v p="$peak" -v n="$steps" -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN {
	printf "%d MiB of training state, a limit of %d MiB: at most %d MiB of anonymous memory, %d steps in %.1f s\n", s, l, p, n, b - a
}'
grep -o '"disk_bytes": *[0-9]*' "$dir/result"
[ "$peak" -le "$limit" ] || [ "$limit" -lt 1024 ] && [ "$peak" -le $((limit + 128)) ] || { echo "the run exceeds its limit"; exit 1; }
[ -z "$alone" ] || exit 0
run "$dir/free"
echo "without a limit: at most $(cat "$dir/peak") MiB"
for file in "$dir"/free/*.safetensors; do cmp "$file" "$dir/bound/$(basename "$file")"; done
echo "the weights are the same bit for bit"
