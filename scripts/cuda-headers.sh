#!/usr/bin/env bash
# usage: cuda-headers.sh FOLDER   puts NVIDIA's headers, which building with -tags cuda needs, into FOLDER, from
# a package of the Python registry (3.5 MB). Nothing of it is committed. Its last line is the include folder.
set -euo pipefail
PACKAGE=nvidia-cuda-runtime-cu12==12.9.79
mkdir -p "$1"
include=$(cd "$1" && pwd)/nvidia/cuda_runtime/include
if ! [ -f "$include/cuda.h" ]; then
	python3 -m pip download -q --no-deps --no-cache-dir --only-binary :all: --platform manylinux2014_x86_64 -d "$1" "$PACKAGE" >&2
	(cd "$1" && python3 -m zipfile -e nvidia_cuda_runtime_cu12-*.whl . && rm nvidia_cuda_runtime_cu12-*.whl) >&2
fi
echo "$include"
