#!/usr/bin/env bash
# usage: build.sh FOLDER   builds the simulated driver: FOLDER/libcuda.so.1 and FOLDER/kernels.so
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
common=(-O2 -fPIC -shared -std=c++17 -ffp-contract=off -Wall -Wextra -Werror)
"${CLANG:-clang++-19}" "${common[@]}" -Wno-unused-parameter "$here/sim.cc" -Wl,-soname,libcuda.so.1 -o "$1/libcuda.so.1"
# A misaligned access, which a GPU does not take, ends the process.
"${CLANG:-clang++-19}" "${common[@]}" -mfma -mf16c -mavx2 -fsanitize=alignment -fsanitize-trap=alignment \
	-Wno-unknown-pragmas -Wno-pass-failed -x c++ "$here/../kernels/exact.cu" "$here/../kernels/fast.cu" -x none "$1/libcuda.so.1" -o "$1/kernels.so"
