#!/usr/bin/env bash
# usage: bench-gpu.sh OUT [--simulator]   tests the code for GPUs on GPU 0, then measures it: copies, kernels beside
# torch's, and `serve bench` beside transformers with accelerate on the same folder. Takes at most eight minutes. Writes
# OUT/gpu.json and OUT/gpu.txt; OUT/*.log has all output. Models are random and made here.
# Needs Go, a C compiler and pip; torch, transformers and accelerate for the comparisons ($HEFT_PYTHON, else python3).
# With --simulator all of it runs on the simulated driver, with small shapes: that shows that the script works, and its
# numbers mean nothing.
set -euo pipefail
[ $# -ge 1 ] || { sed -n 2,8p "$0" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
simulator=${2:-}
cd "$(dirname "$0")/.."
python=${HEFT_PYTHON:-python3}
began=$SECONDS
left() { echo $((480 - SECONDS + began)); }

CGO_CFLAGS="-I$(scripts/cuda-headers.sh "$out/build" | tail -1)"
export CGO_CFLAGS
short=()
if [ "$simulator" = --simulator ]; then
	internal/backend/cuda/sim/build.sh "$out/build/sim"
	export LD_LIBRARY_PATH=$out/build/sim CUDASIM_KERNELS=$out/build/sim/kernels.so CUDASIM_DEVICES=2
	short=(-short)
elif [ -n "$simulator" ]; then
	echo "bench-gpu: unknown option $simulator" >&2
	exit 2
fi
go build -tags cuda -o "$out/build/serve-cuda" ./cmd/serve
"$out/build/serve-cuda" devices --cache-dir none | grep '^gpu' >"$out/devices.txt" || true
if ! grep -q '^gpu 0' "$out/devices.txt"; then
	echo "bench-gpu: there is no GPU to measure: $(cat "$out/devices.txt")" >&2
	exit 1
fi
cat "$out/devices.txt"

# Correct first: no number of a kernel that is wrong. Tests that choose the simulator's faults are left out.
echo "== correctness"
export HEFT_REQUIRE=cuda
correct='TestConformance|TestSameAsCPU|TestFills|TestFused|TestTokens|TestAGate|TestTiles|TestAttentionInRows|TestOperands'
[ -z "$simulator" ] || correct='TestFills' # scripts/check-cuda.sh runs the others there
if ! timeout "$(left)" go test -tags cuda -count=1 "${short[@]}" -run "$correct" ./internal/backend/cuda >"$out/correctness.log" 2>&1; then
	tail -20 "$out/correctness.log" >&2
	echo "bench-gpu: the kernels are wrong on this GPU; nothing is measured" >&2
	exit 1
fi
if [ -z "$simulator" ] && ! timeout "$(left)" go test -tags cuda -count=1 -run 'TestGPUs' ./dispatch/internal/test/gpu >"$out/golden.log" 2>&1; then
	tail -20 "$out/golden.log" >&2
	echo "bench-gpu: models answer differently on this GPU; nothing is measured" >&2
	exit 1
fi

echo "== copies and kernels ($(left) s are left)"
timeout "$(left)" go test -tags cuda -run '^$' -bench 'Link|Linear|Attention|Norm' -benchtime 50ms "${short[@]}" ./internal/backend/cuda >"$out/kernels.log" 2>&1 || {
	tail -20 "$out/kernels.log" >&2
	exit 1
}
"$python" scripts/bench_gpu.py "$out" "$(left)" $simulator
cat "$out/gpu.txt"
