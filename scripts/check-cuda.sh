#!/usr/bin/env bash
# usage: check-cuda.sh [FOLDER]   tests the code for GPUs on a simulated driver, which needs no GPU. FOLDER keeps
# the headers and the simulator between runs.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-$(mktemp -d)}
CGO_CFLAGS="-I$(scripts/cuda-headers.sh "$folder" | tail -1)"
export CGO_CFLAGS
internal/backend/cuda/sim/build.sh "$folder/sim"

# The committed PTX is that of the kernels.
kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT
cp internal/backend/cuda/kernels/*.ptx "$kept"
internal/backend/cuda/kernels/generate.sh
for f in "$kept"/*.ptx; do
	cmp "$f" "internal/backend/cuda/kernels/$(basename "$f")"
done

go vet -tags cuda ./...
go build -tags cuda -o "$folder/serve-cuda" ./cmd/serve
# One binary with and without a driver.
"$folder/serve-cuda" devices --cache-dir none | grep '^gpu  *none  *no driver'
export LD_LIBRARY_PATH=$folder/sim CUDASIM_KERNELS=$folder/sim/kernels.so CUDASIM_DEVICES=2
"$folder/serve-cuda" devices --cache-dir none | grep '^gpu 1  *Simulated GPU 1  *1.00 GiB, 1.00 GiB free'

export HEFT_REQUIRE=${HEFT_REQUIRE:+$HEFT_REQUIRE,}cuda
go test -tags cuda -count=1 ./internal/backend/cuda/...
# Streams that run as late as they may, with the threads of a block in another order.
CUDASIM_LATE=1 CUDASIM_SEED=1 go test -tags cuda -count=1 ./internal/backend/cuda
CUDASIM_SEED=2 go test -tags cuda -count=1 -race -short ./internal/backend/cuda
