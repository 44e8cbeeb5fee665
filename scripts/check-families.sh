#!/bin/sh
# Makes fresh random models of each family with transformers and runs the golden tests on them. Their options are
# varied beyond what the committed fixtures have (scripts/families/vary.py, scripts/families/widen.py).
#
#   scripts/check-families.sh SEED [COUNT [FAMILY...]]
#
# PYTHON names an interpreter with torch and transformers.
set -eu
cd "$(dirname "$0")/.."
seed=$1 count=${2:-5}
shift; [ $# -gt 0 ] && shift
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
"${PYTHON:-python3}" scripts/make-family-fixtures.py --fresh "$count" --seed "$seed" "$root/infer/models" "$@"
HEFT_GOLDEN=$root go test ./internal/nn ./meta ./loader ./dispatch/internal/test/... ./train/model ./internal/engine -count=1 \
	-run 'TestGoldenModels|TestGoldenServedModels|TestGoldenGradients'
