#!/usr/bin/env bash
# Serves a model under a memory limit and shows what the process really takes: the time from exec to the first answer
# of /health, and its anonymous memory (RssAnon) while it answers.
#   scripts/check-memory-contract.sh SERVE_BINARY MODEL_DIR [LIMIT_MIB] [RUNS]
# Drops the model's files from the page cache first where it may (root). Exits 1 where the limit was exceeded.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 scripts/check_memory_contract.py "$@"
