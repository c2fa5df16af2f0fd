#!/bin/bash
# Writes, or reads, sandbox checkpoints with the real code of an old release. See README.md.
# usage: regenerate.sh [VERSION [write|read DIR]]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export GOFLAGS=-mod=mod GOTOOLCHAIN=local

one() { # VERSION write|read DIR
  local version=$1 verb=$2 dir=$3 src tmp f
  src=$(cd / && go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  tmp=$(mktemp -d)
  cat > "$tmp/go.mod" <<'MOD'
module k8s.io/kubernetes

go 1.20

require (
	github.com/davecgh/go-spew v0.0.0-20170626231645-782f4967f2dc
	github.com/golang/glog v0.0.0-20141105023935-44145f04b68c
)
MOD
  cat > "$tmp/go.sum" <<'SUM'
github.com/davecgh/go-spew v0.0.0-20170626231645-782f4967f2dc h1:0A0n6a0Y3vW5ktoWKC+ggkGXRzMJWMvqIYlFmsjwQzY=
github.com/davecgh/go-spew v0.0.0-20170626231645-782f4967f2dc/go.mod h1:J7Y8YcW2NihsgmVo/mv3lAwl/skON4iLHjSsI+c5H38=
github.com/golang/glog v0.0.0-20141105023935-44145f04b68c h1:CbdkBQ1/PiAo0FYJhQGwASD8wrgNvTdf01g6+O9tNuA=
github.com/golang/glog v0.0.0-20141105023935-44145f04b68c/go.mod h1:SBH7ygxi8pfUlaOkMMuAQtPIUF8ecWP5IEl/CR7VP2Q=
SUM
  # Just what docker_checkpoint.go needs: the store moved to its own package in 1.9.
  for f in pkg/kubelet/dockershim/docker_checkpoint.go pkg/kubelet/dockershim/checkpoint_store.go \
    pkg/kubelet/dockershim/errors/errors.go pkg/kubelet/util/store/store.go pkg/kubelet/util/store/filestore.go \
    pkg/util/filesystem/filesystem.go pkg/util/filesystem/defaultfs.go pkg/util/hash/hash.go; do
    if [ -f "$src/$f" ]; then mkdir -p "$tmp/$(dirname "$f")"; cp "$src/$f" "$tmp/$f"; fi
  done
  mkdir "$tmp/driver"; cp "$here/driver.go.txt" "$tmp/driver/main.go"
  mkdir -p "$dir"
  (cd "$tmp" && go run ./driver "$verb" "$dir")
  chmod -R u+w "$tmp"; rm -r "$tmp"
}

if [ $# -eq 0 ]; then
  for v in v1.7.0 v1.8.15 v1.9.11; do one "$v" write "$here/$v"; done
else
  one "$1" "${2:-write}" "$(mkdir -p "${3:-$here/$1}" && cd "${3:-$here/$1}" && pwd)"
fi
