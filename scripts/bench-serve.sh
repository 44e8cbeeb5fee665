#!/usr/bin/env bash
# Measures one model in a few settings with `serve bench` and prints a table.
#   scripts/bench-serve.sh DIR [OUT]
# DIR is a model's folder; OUT, if given, is a folder that keeps each setting's JSON for --compare.
# Environment: SERVE (a binary; built otherwise), PROMPT (128), DECODE (32), RUNS (3; the median by decode speed is shown),
# STREAM_MEMORY (the --max-memory of the streaming setting; twice the least that works otherwise).
set -euo pipefail
if [ $# -lt 1 ]; then
	sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
model=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=${2:-$work}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.."
serve=${SERVE:-$work/serve}
[ -x "$serve" ] || CGO_ENABLED=0 go build -o "$serve" ./cmd/serve

# field NAME FILE: a number, or "-" for null. bench prints one field a line; the first of a name counts.
field() { awk -v name="\"$1\":" '$1 == name { v = $2; sub(/,$/, "", v); print v == "null" ? "-" : v; exit }' "$2"; }
# scaled NAME FILE DIVISOR: the number divided, in three digits.
scaled() { field "$1" "$2" | awk -v d="$3" '{ if ($1 == "-") print $1; else printf "%.3g\n", $1 / d }'; }

# setting NAME FLAG...: the median of some runs.
setting() {
	local name=$1 run
	shift
	for run in $(seq "${RUNS:-3}"); do
		"$serve" bench "$model" --json --prompt-tokens "${PROMPT:-128}" --decode-tokens "${DECODE:-32}" "$@" >"$work/run$run.json"
		printf '%s %s\n' "$(field decode_tokens_per_second "$work/run$run.json")" "$run"
	done | sort -g >"$work/order"
	run=$(awk '{ runs[NR] = $2 } END { print runs[int((NR + 1) / 2)] }' "$work/order")
	cp "$work/run$run.json" "$out/$name.json"
	row "$name" "$out/$name.json"
}

format='%-14s %9s %9s %9s %9s %9s %7s %9s %9s %8s\n'
row() {
	# shellcheck disable=SC2059
	printf "$format" "$1" "$(scaled prompt_tokens_per_second "$2" 1)" "$(scaled time_to_first_token_seconds "$2" 1)" \
		"$(scaled decode_tokens_per_second "$2" 1)" "$(scaled decode_bytes_per_second "$2" 1e9)" "$(scaled memory_read_bytes_per_second "$2" 1e9)" \
		"$(scaled decode_roof_share "$2" 0.01)" "$(scaled disk_bytes_per_second "$2" 1e9)" "$(scaled disk_probe_bytes_per_second "$2" 1e9)" \
		"$(scaled allocations_per_token "$2" 1)"
}

echo "$model: prompt ${PROMPT:-128}, decode ${DECODE:-32}, median of ${RUNS:-3}"
# shellcheck disable=SC2059
printf "$format" setting 'prompt/s' 'first, s' 'decode/s' 'GB/s' 'memory' 'share%' 'disk' 'disk max' 'allocs'
threads=$("$serve" devices --json | awk '$1 == "\"threads\":" { sub(/,$/, "", $2); print $2; exit }')
setting 1-thread --threads 1
[ "$threads" -gt 1 ] && setting "$threads-threads" --threads "$threads"
setting batch-8 --batch 8
least=$("$serve" plan "$model" --json --no-probe --device-map disk | awk '$1 == "\"least_bytes\":" { sub(/,$/, "", $2); print $2; exit }')
setting streaming --max-memory "cpu=${STREAM_MEMORY:-$((2 * least))}"
setting all-on-disk --device-map disk
