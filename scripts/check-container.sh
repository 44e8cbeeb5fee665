#!/usr/bin/env bash
# Builds deploy/Containerfile with buildah, without a registry, and asks the server in the image for an answer. In place of
# the image golang it takes one of this machine's Go and a static busybox: Debian's packages buildah and busybox-static.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in buildah busybox go curl; do
	command -v "$tool" >/dev/null || { echo "check-container: $tool is missing" >&2; exit 1; }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/heft-container-XXXXXX")
port=${PORT:-18433}
server=
store=(buildah --root "$work/root" --runroot "$work/run" --storage-driver vfs)
export BUILDAH_ISOLATION=chroot CONTAINERS_REGISTRIES_CONF=$work/registries.conf
finish() {
	[ -z "$server" ] || kill -- "-$server" 2>/dev/null || true
	"${store[@]}" rm --all >/dev/null 2>&1 || true
	rm -rf "$work"
}
trap finish EXIT
echo 'unqualified-search-registries = ["docker.io"]' >"$work/registries.conf"
base=$work/base
mkdir -p "$base"/{bin,etc/ssl/certs,go,root,tmp,usr/local}
cp "$(command -v busybox)" "$base/bin/busybox"
for applet in sh mkdir chmod chown; do ln -s busybox "$base/bin/$applet"; done
cp -r "$(go env GOROOT)" "$base/usr/local/go"
cp /etc/ssl/certs/ca-certificates.crt "$base/etc/ssl/certs/"
cp /etc/resolv.conf /etc/hosts "$base/etc/"
image=$("${store[@]}" from scratch)
"${store[@]}" copy -q "$image" "$base" / >/dev/null
"${store[@]}" config --env PATH=/usr/local/go/bin:/bin --env HOME=/root --env GOPATH=/go --env GOTOOLCHAIN=local \
	--env "GOPROXY=$(go env GOPROXY)" --env "GOSUMDB=$(go env GOSUMDB)" "$image"
"${store[@]}" commit -q "$image" docker.io/library/golang:1.26 >/dev/null
mkdir "$work/src"
git archive HEAD | tar -x -C "$work/src"
"${store[@]}" bud --pull-never -f deploy/Containerfile -t heft "$work/src"
heft=$("${store[@]}" from --pull-never localhost/heft)
set -m
"${store[@]}" run "$heft" -- /serve --port "$port" >"$work/log" 2>&1 &
server=$!
set +m
for _ in $(seq 60); do
	curl -fs "http://127.0.0.1:$port/health" >/dev/null && break
	sleep 1
done
curl -fs "http://127.0.0.1:$port/v1/completions" -d '{"prompt":"The boat","max_tokens":5}' || { cat "$work/log"; exit 1; }
echo
"${store[@]}" run "$heft" -- /train --version
echo "check-container: the image answers, and has train"
