#!/usr/bin/env bash
# Measures serve bench in turn with llama.cpp and, where it is there, torch, on one model and one machine, and prints
# medians and ratios: a shared machine's speed wanders, so that only runs beside each other compare.
#
#   scripts/bench-peers.sh [--rounds 5] [--only decode,prefill,server,torch,amx] [--row NAME] [--json OUT]
#
# PEERS_DIR     has bin/llama-bench, bin/llama-server, hf/SIZE and gguf/SIZE-{bf16,q8_0,q4_0}.gguf
# PEERS_BIN     where llama-bench and llama-server are, $PEERS_DIR/bin without it
# SIZE          of the model, mid without it
# CLIENT        a client that takes --url --streams --prompt-tokens --max-tokens --rounds and prints decode_tok_s in
#               JSON, bench_streams.py without it
# TORCH_PYTHON  a python with torch and transformers; without one torch is not measured
# RUN           a command that runs each timing, as a lock that keeps the machine quiet
#
# Without AMX: serve bench runs with HEFT_CPU=avx512bf16 unless that is set, torch with ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16. llama.cpp
# chooses when it is built. With GGML_NATIVE its compiler enables AMX whatever its GGML_AMX_* options say, so rebuild
# after its configuration with the flags behind -march=native, and give the result as PEERS_BIN:
#
#   sed -i 's/-march=native/& -mno-amx-tile -mno-amx-int8 -mno-amx-bf16/' build.ninja && ninja llama-bench llama-server
#
# HEFT_CPU=avx2 compares the AVX2 variant, with a llama.cpp that was built with -DGGML_NATIVE=OFF -DGGML_AVX2=ON
# -DGGML_FMA=ON -DGGML_F16C=ON.
#
# bench-peers.sh refuses a llama-bench with AMX instructions on a machine that has them, but for --with-amx.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${PEERS_DIR:?names the folder of the peers}"
export PEERS_DIR PEERS_BIN="${PEERS_BIN:-$PEERS_DIR/bin}" SIZE="${SIZE:-mid}" CLIENT="${CLIENT:-scripts/bench_streams.py}"
with_amx=0
arguments=()
for a in "$@"; do
	if [ "$a" = --with-amx ]; then with_amx=1; else arguments+=("$a"); fi
done
if [ $with_amx = 0 ] && grep -qw amx_tile /proc/cpuinfo && objdump -d "$PEERS_BIN/llama-bench" | grep -qm1 'tdpb'; then
	echo "$PEERS_BIN/llama-bench was built with AMX: see the top of this script" >&2
	exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/serve" ./cmd/serve
python3 scripts/bench_peers.py --serve "$work/serve" "${arguments[@]}"
