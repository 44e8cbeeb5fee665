#!/usr/bin/env bash
# usage: generate.sh   makes the committed PTX of the kernels, compressed, for clang-19 of Debian
set -euo pipefail
cd "$(dirname "$0")"
for arch in sm_80 sm_90a; do
	for kernels in exact fast; do
		"${CLANG:-clang-19}" -x cuda --cuda-device-only --cuda-gpu-arch=$arch --cuda-feature=+ptx80 -nocudainc -nocudalib \
			-O3 -ffp-contract=off -S $kernels.cu -o $kernels.$arch.ptx
	done
	# The driver's compiler may fuse or approximate what does not say how it rounds.
	if grep -nE '\b(add|sub|mul|div|sqrt|rcp|fma)\.(approx|full|ftz|f32|f64)' exact.$arch.ptx; then
		echo "exact.$arch.ptx has arithmetic without .rn" >&2
		exit 1
	fi
	gzip -9nf exact.$arch.ptx fast.$arch.ptx
done
