#!/usr/bin/env bash
# Regenerates every generated file and fails where one is not what is committed. The kernels need clang-19 and
# lld-19; other versions emit other code, so they are not compared.
set -euo pipefail
cd "$(dirname "$0")/.."
go generate ./...
if ! git diff --exit-code --stat; then
	echo "generated files differ from what is committed: run go generate ./... and commit" >&2
	exit 1
fi
