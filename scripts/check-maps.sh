#!/usr/bin/env bash
# Runs the committed golden models under every device map. .ci/run takes some of the maps for each.
set -euo pipefail
cd "$(dirname "$0")/.."
HEFT_GOLDEN=$PWD/testdata/golden go test -count=1 -timeout 30m ./dispatch/internal/test/placement -run UnderFiveMaps
