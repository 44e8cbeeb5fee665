#!/bin/sh
# Compares training steps of `train bench` and of torch, in turn: forward, backward, clipping
# and AdamW on random tokens, batch 8 x 256, 2 threads. Prints medians and ratios.
#
#   PYTHON=VENV/bin/python scripts/bench-train.sh MODEL_DIR...
#
# PYTHON has torch and transformers. TORCH_BENCH is the program that runs torch's loop
# (../shared/peers/bench_train.py): bench_train.py DIR --modes fp32|bf16 --steps N.
# ROUNDS (5), STEPS (5) and MODES (fp32 bf16) say how much; VARIANT is train bench's --cpu. AMX=0 turns the tiles
# off on both sides (avx512bf16, and oneDNN's AVX512_CORE_BF16). RUN is put before each command
# (for example "taskset -c 0,1").
set -eu
cd "$(dirname "$0")/.."
: "${PYTHON:=python3}" "${TORCH_BENCH:=../shared/peers/bench_train.py}" "${ROUNDS:=5}" "${STEPS:=5}" "${MODES:=fp32 bf16}" "${VARIANT:=}" "${AMX:=1}" "${RUN:=}"
[ $# -gt 0 ] || { sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2; }
if [ "$AMX" = 0 ]; then
  : "${VARIANT:=avx512bf16}"
  export ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/train" ./cmd/train
for dir in "$@"; do
  round=0
  while [ $round -lt "$ROUNDS" ]; do
    round=$((round + 1))
    for mode in $MODES; do
      dtype=float32
      [ $mode = fp32 ] || dtype=bfloat16
      echo "$(basename "$dir") $mode, round $round of $ROUNDS" >&2
      $RUN "$PYTHON" "$TORCH_BENCH" "$dir" --modes $mode --threads 2 --steps "$STEPS" >>"$work/torch"
      $RUN "$work/train" bench --model "$dir" --threads 2 --steps "$STEPS" --dtype $dtype ${VARIANT:+--cpu "$VARIANT"} --json >>"$work/heft"
    done
  done
done
"$PYTHON" - "$work/torch" "$work/heft" <<'EOF'
import json, statistics, sys

def rows(path, key, speed, memory):
    out = {}
    for line in open(path):
        if line.startswith("{"):
            r = json.loads(line)
            out.setdefault(key(r), []).append((r[speed], r[memory]))
    return {k: [statistics.median(x) for x in zip(*v)] for k, v in out.items()}

torch = rows(sys.argv[1], lambda r: (r["dir"], r["mode"]), "tok_s", "peak_rss_mib")
heft = rows(sys.argv[2], lambda r: (r["model"], {"float32": "fp32", "bfloat16": "bf16"}[r["dtype"]]), "tokens_per_second", "peak_rss_bytes")
print("| model | mode | torch tok/s | heft tok/s | ratio | torch MiB | heft MiB | ratio |\n|---|---|---|---|---|---|---|---|")
for k in torch:
    (a, m), (b, n) = torch[k], heft[k]
    n /= 1 << 20
    print(f"| {k[0]} | {k[1]} | {a:.0f} | {b:.0f} | {b / a:.2f} | {m:.0f} | {n:.0f} | {n / m:.2f} |")
EOF
