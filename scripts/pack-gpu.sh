#!/usr/bin/env bash
# usage: pack-gpu.sh FILE.tar.xz   packs the tests of the code for GPUs and a server with it, for a machine that has a GPU
# and no Go. There, in an empty folder:
#
#   tar xf FILE.tar.xz && ./tests kernels      the kernels, in half a minute
#   ./tests models [PATTERN]                   golden models over maps of the GPU, the CPU and the disk (TestGPUs)
#   ./tests bench [PATTERN]                    the benchmarks of the kernels
#   ./serve-cuda bench MODEL --gpu-kernels fast
#
# The machine needs NVIDIA's driver and a glibc that is not older than this one's. The file takes some 40 MB.
set -euo pipefail
[ $# -eq 1 ] || { sed -n 2,11p "$0" >&2; exit 2; }
touch "$1"
file=$(realpath "$1")
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
CGO_CFLAGS="-I$(scripts/cuda-headers.sh "$folder/build" | tail -1)"
export CGO_CFLAGS
small=(-tags cuda "-ldflags=-s -w")
mkdir -p "$folder/pack/dispatch"
go test -c "${small[@]}" -o "$folder/pack/cuda.test" ./internal/backend/cuda
go test -c "${small[@]}" -o "$folder/pack/models.test" ./dispatch/internal/test/gpu
go build "${small[@]}" -o "$folder/pack/serve-cuda" ./cmd/serve
cp go.mod "$folder/pack"
cp -r testdata "$folder/pack"
cp -r dispatch/testdata "$folder/pack/dispatch"
cat >"$folder/pack/tests" <<'TESTS'
#!/usr/bin/env bash
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export HEFT_REQUIRE=cuda
case ${1:-} in
kernels) exec "$here/cuda.test" -test.run 'TestConformance|TestSameAsCPU|TestFills|TestFused|TestTokens|TestAGate|TestTiles|TestAttentionInRows|TestOperands' ;;
models) cd "$here/dispatch" && exec "$here/models.test" -test.timeout 1h -test.run "${2:-TestGPUs}" ;;
bench) exec "$here/cuda.test" -test.run '^$' -test.bench "${2:-Link|Linear|Attention|Norm|Block}" -test.benchtime 200ms ;;
*) echo "usage: tests kernels | models [PATTERN] | bench [PATTERN]" >&2 && exit 2 ;;
esac
TESTS
chmod +x "$folder/pack/tests"
tar -C "$folder/pack" -c . | xz -T0 --lzma2=preset=1,dict=96MiB >"$file"
ls -l "$file"
