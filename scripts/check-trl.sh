#!/usr/bin/env bash
# usage: check-trl.sh [FOLDER]
# Trains tiny models with TRL (supervised, preference, reward, GRPO), then with `train run` on the same data: the loss and the
# metrics of each step must agree within the tests' 1e-5. FOLDER keeps what TRL did. Takes some five minutes and 1 GB
# beside the Python of .ci/run, whose torch and transformers it uses.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/trl-python.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=${1:-$work}
mkdir -p "$out/train"
cp -r testdata/golden/train/preference "$out/train"
for kind in preference sft reward grpo; do
	mkdir -p "$out/train/$kind"
	"$python" "scripts/make-$kind-fixtures.py" "$out/train/$kind" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
	echo "TRL $kind: $(find "$out/train/$kind" -type f | wc -l) files"
done
HEFT_GOLDEN=$out go test ./train/finetune ./cmd/train -count=1 -v -run "TestGolden(SFTRuns|PreferenceRuns|RewardModels|GRPORuns)" | grep -E '^(---|ok|FAIL|golden |panic)|_test.go'
