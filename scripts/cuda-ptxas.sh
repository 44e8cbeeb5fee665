#!/usr/bin/env bash
# usage: cuda-ptxas.sh FOLDER   assembles the committed PTX with NVIDIA's ptxas for every GPU architecture that it
# is loaded on, and prints the registers and the spilled bytes of each kernel. ptxas comes from a package of the
# Python registry (41 MB), into FOLDER. No GPU is needed, and nothing of the package is committed.
set -euo pipefail
cd "$(dirname "$0")/.."
PACKAGE=nvidia-cuda-nvcc-cu12==12.9.86
mkdir -p "$1"
folder=$(cd "$1" && pwd)
ptxas=$folder/nvidia/cuda_nvcc/bin/ptxas
if ! [ -x "$ptxas" ]; then
	python3 -m pip download -q --no-deps --no-cache-dir --only-binary :all: --platform manylinux2014_x86_64 --platform manylinux2010_x86_64 -d "$folder" "$PACKAGE" >&2
	(cd "$folder" && python3 - <<'PY'
import glob, os, zipfile
[wheel] = glob.glob("nvidia_cuda_nvcc_cu12-*.whl")
print(zipfile.ZipFile(wheel).extract("nvidia/cuda_nvcc/bin/ptxas"))
os.remove(wheel)
PY
	) >&2
	chmod +x "$ptxas"
fi

cd internal/backend/cuda/kernels
# Each architecture loads the newest PTX that it can: sm_90a's runs there alone.
check() { # ARCHITECTURE FILE
	gzip -dc "$2" >"$folder/kernels.ptx"
	"$ptxas" -arch="$1" -v -o "$folder/kernels.cubin" "$folder/kernels.ptx" 2>"$folder/ptxas.log" || { cat "$folder/ptxas.log" >&2; exit 1; }
	awk -v arch="$1" '
		/Compiling entry function/ { split($0, part, "\047"); name = part[2] }
		/bytes stack frame/ { for (i = 1; i < NF; i++) if ($(i+2) == "spill" && $(i+3) ~ /^stores/) spilled = $i }
		/Used [0-9]+ registers/ { for (i = 1; i < NF; i++) if ($i == "Used") { printf "%-8s %-24s %3d registers, %d bytes spilled\n", arch, name, $(i+1), spilled; kernels++ } }
		END { if (!kernels) { print "cuda-ptxas: no kernels for " arch > "/dev/stderr"; exit 1 } }' "$folder/ptxas.log"
}
for kernels in exact fast; do
	for arch in sm_80 sm_86 sm_89 sm_100 sm_120; do
		check "$arch" $kernels.sm_80.ptx.gz
	done
	check sm_90a $kernels.sm_90a.ptx.gz
done
