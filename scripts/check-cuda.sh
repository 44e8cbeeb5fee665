#!/usr/bin/env bash
# usage: check-cuda.sh [FOLDER]   tests the code for GPUs on a simulated driver, which needs no GPU. FOLDER keeps
# the headers and the simulator between runs. With SHORT=1 each test runs once, golden models over few maps, of
# the other packages only some, and the PTX is not assembled.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-$(mktemp -d)}
CGO_CFLAGS="-I$(scripts/cuda-headers.sh "$folder" | tail -1)"
export CGO_CFLAGS
internal/backend/cuda/sim/build.sh "$folder/sim" &
built=$!

# The committed PTX is that of the kernels.
kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT
cp internal/backend/cuda/kernels/*.ptx.gz "$kept"
internal/backend/cuda/kernels/generate.sh
for f in "$kept"/*.ptx.gz; do
	cmp <(gzip -dc "$f") <(gzip -dc "internal/backend/cuda/kernels/$(basename "$f")")
done
wait "$built"

assembled=
if [ -z "${SHORT:-}" ]; then # the committed PTX, for a minute on one processor
	scripts/cuda-ptxas.sh "$folder" >"$folder/registers.log" &
	assembled=$!
fi
go vet -tags cuda ./...
go build -tags cuda -o "$folder/serve-cuda" ./cmd/serve
[ -z "$assembled" ] || wait "$assembled"
# One binary with and without a driver.
"$folder/serve-cuda" devices --cache-dir none | grep '^gpu  *none  *no driver'
export LD_LIBRARY_PATH=$folder/sim CUDASIM_KERNELS=$folder/sim/kernels.so CUDASIM_DEVICES=2
"$folder/serve-cuda" devices --cache-dir none | grep '^gpu 1  *Simulated GPU 1  *1.00 GiB, 1.00 GiB free'

export HEFT_REQUIRE=${HEFT_REQUIRE:+$HEFT_REQUIRE,}cuda,cudasim
run() { go test -tags cuda -count=1 -timeout 2h "$@"; }
# With capability 9.0 kernels of GPUs of that architecture are loaded, which may begin before others have ended.
# Late streams run as late as they may, with the threads of a block in another order.
# Golden models over maps of two GPUs, the CPU and the disk have the CPU's bits, and with kernels for tensor cores they
# stay within the tolerance. GPUs fail or are full while models are opened and served.
# Tests of other packages pass in the build with code for GPUs, and see none that they do not ask for.
if [ -n "${SHORT:-}" ]; then
	# TestConformanceOfFastKernels runs the suite of operations, and TestSameAsCPU compares the exact kernels.
	CUDASIM_CAPABILITY=90 CUDASIM_LATE=1 CUDASIM_SEED=1 run -short -skip '^TestConformance$' ./internal/backend/cuda/... ./dispatch/internal/test/gpu ./train/finetune
	run -run 'TestDevices|TestErrorsAreOneLine' ./cmd/serve
else
	gpu=./dispatch/internal/test/gpu
	CUDASIM_CAPABILITY=90 run ./internal/backend/cuda/...
	CUDASIM_LATE=1 CUDASIM_SEED=1 run ./internal/backend/cuda
	CUDASIM_SEED=2 run -race -short ./internal/backend/cuda
	run "$gpu"
	CUDASIM_LATE=1 CUDASIM_SEED=1 run -run TestGPUs "$gpu"
	CUDASIM_LATE=kernels run -run TestGPUs "$gpu" # copies as early as they may
	run ./cmd/... ./api/... ./internal/engine ./train/model ./train/finetune ./examples/... ./dispatch/internal/test/gguf
fi

# A server answers over HTTP with the CPU's tokens, and its plan names the GPUs.
start() { # MAP [FLAG...]: sets server, its process, and at, its address
	"$folder/serve-cuda" --device-map "$@" --precision high --cache-dir none --port 0 >"$folder/serve.log" 2>&1 &
	server=$! at=
	while [ -z "$at" ]; do
		kill -0 "$server" || { cat "$folder/serve.log" >&2; return 1; }
		sleep 0.1
		at=$(grep -o 'http://127.0.0.1:[0-9]*' "$folder/serve.log" | head -1) || true
	done
}
complete() {
	python3 - "$at" <<'EOF'
import sys, urllib.error, urllib.request
body = b'{"prompt": "The disk", "max_tokens": 12, "temperature": 0}'
request = urllib.request.Request(sys.argv[1] + "/v1/completions", body, {"Content-Type": "application/json"})
try:
    print(urllib.request.urlopen(request).read().decode())
except urllib.error.HTTPError as e:
    print(e.read().decode())
EOF
}
answer() { # MAP [FLAG...]
	start "$@"
	complete | grep -o '"text":"[^"]*"'
	kill "$server"
	wait "$server" || true
}
want=$(answer cpu)
[ "$want" != '"text":""' ]
for map in auto '{"": 0, "model.layers.1": "cpu", "model.norm": 1, "lm_head": 1}' '{"": "disk", "model.layers.0": 1}'; do
	got=$(answer "$map")
	[ "$got" = "$want" ] || { echo "check-cuda: map $map answers $got, the CPU $want" >&2; exit 1; }
	grep -q 'msg=plan device=[01] ' "$folder/serve.log" || { echo "check-cuda: the plan of $map names no GPU" >&2; exit 1; }
done

got=$(CUDASIM_LATE=kernels answer '{"": "disk", "model.layers.0": 1}' --stream-prompts 1)
[ "$got" = "$want" ] || { echo "check-cuda: with streams the answer is $got, the CPU's $want" >&2; exit 1; }
# The plan says which prompts stream. The speeds that decide are measured once.
split='{"": "cpu", "model.layers.0": 0}'
"$folder/serve-cuda" plan --device-map "$split" --stream-prompts 64 --no-probe --cache-dir none | grep '^prompts of 64 tokens or more compute blocks of the cpu and the disk on GPU 0'
rm -rf "$folder/measured"
"$folder/serve-cuda" plan --device-map "$split" --cache-dir "$folder/measured" >/dev/null
grep link_bytes_per_second "$folder"/measured/gpu-*.json

# A GPU with less memory than its limit says is an error at the start.
for memory in 6000000 12000000; do
	if CUDASIM_MEMORY=$memory "$folder/serve-cuda" --device-map '{"": 0}' --max-memory 0=10GiB --cache-dir none --port 0 >"$folder/serve.log" 2>&1; then
		echo "check-cuda: a GPU of $memory bytes was enough" >&2
		exit 1
	fi
	grep 'has too little memory for the .*; lower ' "$folder/serve.log"
done

# A second server on a GPU whose memory the first one has says so, and disturbs it not. Planned from what is free, it runs.
mkdir -p "$folder/others"
rm -f "$folder"/others/*
export CUDASIM_OTHERS=$folder/others CUDASIM_MEMORY=120000000
start '{"": 0}' --max-memory 0=10GiB --max-batch 16 # whose KV cache fits
first=$server first_at=$at
if "$folder/serve-cuda" --device-map '{"": 0}' --max-memory 0=10GiB --cache-dir none --port 0 >"$folder/second.log" 2>&1; then
	echo "check-cuda: two servers have more than the GPU's memory" >&2
	exit 1
fi
grep 'GPU 0 has too little memory for the .* (the plan takes .* MiB, the model has .*, .* MiB of 114 MiB are free now): .*; lower its limit with --max-memory 0=' "$folder/second.log"
got=$(answer auto)
[ "$got" = "$want" ] || { echo "check-cuda: beside another server the answer is $got, the CPU's $want" >&2; exit 1; }
at=$first_at
complete | grep -F "$want"
kill "$first"
wait "$first" || true
# A GPU with nothing free is no GPU, and the log says why.
echo 120000000 >"$folder/others/$$"
got=$(CUDASIM_DEVICES=1 answer auto)
[ "$got" = "$want" ] || { echo "check-cuda: beside a full GPU the answer is $got, the CPU's $want" >&2; exit 1; }
grep 'GPU 0 is not used: ' "$folder/serve.log"
"$folder/serve-cuda" devices --cache-dir none | grep '^gpu 0 .* not used: OutOfMemory'
unset CUDASIM_OTHERS CUDASIM_MEMORY

# A lost GPU ends the request with an error that names it, and the server with the reason.
export CUDASIM_FAIL=launch:40
start '{"": 0}'
complete | grep 'GPU 0: .*CUDA_ERROR_LAUNCH_FAILED'
if wait "$server"; then
	echo "check-cuda: the server ends without an error" >&2
	exit 1
fi
grep 'a GPU was lost: the server ends' "$folder/serve.log"
unset CUDASIM_FAIL

# The script for whoever has a GPU works, and says when there is none.
mkdir -p "$folder/bench"
ln -sfn "$folder" "$folder/bench/build"
{ env -u LD_LIBRARY_PATH scripts/bench-gpu.sh "$folder/bench" 2>&1 || true; } | grep '^bench-gpu: there is no GPU to measure: gpu  *none  *no driver'
scripts/bench-gpu.sh "$folder/bench" --simulator | grep '^serve, half on the disk, prompts streamed: {'
