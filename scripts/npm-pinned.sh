#!/usr/bin/env bash
# usage: npm-pinned.sh NAME PACKAGE@VERSION   installs a package into HEFT_CI_TOOLS, unless this version is there, and prints the
# folder of its commands.
set -euo pipefail
tools=${HEFT_CI_TOOLS:-$HOME/.cache/heft-ci}/$1
if [ "$(cat "$tools/installed" 2>/dev/null)" != "$2" ]; then
	command -v npm >/dev/null || { echo "needs npm" >&2; exit 1; }
	rm -rf "$tools"
	mkdir -p "$tools"
	echo '{"private": true}' >"$tools/package.json"
	(cd "$tools" && npm install --silent --no-audit --no-fund "$2" >&2)
	echo "$2" >"$tools/installed"
fi
echo "$tools/node_modules/.bin"
