#!/usr/bin/env bash
# Fine-tunes a checkpoint with LoRA (rank 16 on every linear map, one sequence of 256 tokens,
# blocks computed again) and fails where that takes more anonymous memory than the limit.
#   scripts/check-lora-memory.sh MODEL_FOLDER [LIMIT_GIB] [STEPS]
# The base stays in its mapped file: its pages are the system's to take back and do not count.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n 2,5p "$0"; exit 2; }
out=$(go run ./scripts/loramemory -model "$1" -steps "${3:-3}")
echo "$out"
python3 - "$out" "${2:-4}" <<'PY'
import json, sys
r, limit = json.loads(sys.argv[1]), float(sys.argv[2])
took = r["peak_anonymous_bytes"] / 2**30
print(f"{took:.2f} GiB of anonymous memory, limit {limit:g}; {r['seconds_per_step']:.1f} s a step; losses {r['losses']}")
sys.exit(took > limit or not r["losses"][-1] < r["losses"][0])
PY
