#!/usr/bin/env bash
# Writes the type tables and the golden values of package podtemplatehash by
# compiling and running the code of the old releases themselves.
# usage: run.sh [SRC]   SRC/<base>/stock are the trees of "holdfast source" (default _output/src)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
here=$PWD
root=$(cd ../../../../.. && pwd)
src=${1:-$root/_output/src}
tables=$root/cmd/internal/podtemplatehash/schema
manifests=("$here"/../manifests/*.json)
# Before 1.6 there are no projected volumes, and a volume whose source is not known becomes an empty directory.
mapfile -t manifests12 < <(printf '%s\n' "${manifests[@]}" | grep -v /recent.json)
mkdir -p "$tables"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ ! -d "$src/v1.2.0/stock" ]; then
  echo "run.sh: $src/v1.2.0/stock is missing: make BASE=v1.2.0 first" >&2; exit 1
fi
# 1.2: GOPATH mode. The tree's toolchain series prints the types of the
# standard library as the release's own Go 1.4 did.
tree=$src/v1.2.0/stock/src/k8s.io/kubernetes
main=$tree/cmd/holdfast-golden; mkdir -p "$main"
cp schema.go.in "$main/schema.go"; cp main-1.2.go.in "$main/main.go"
(cd "$tree" && GOPATH=$tree/Godeps/_workspace:$src/v1.2.0/stock GO111MODULE=off GOFLAGS='-trimpath -buildvcs=false' \
  go build -o "$work/golden-1.2" ./cmd/holdfast-golden)
rm -r "$main"
"$work/golden-1.2" "$tables/1.2.json" "$here/1.2.json" "${manifests12[@]}"

# 1.3 to 1.6: no base of ours. Their packages of types compile with the pins of
# the v1.7.0 tree and without the release's vendor folder (a module has none).
for base in v1.3.0 v1.4.0 v1.5.0 v1.6.1; do
  minor=${base#v}; minor=${minor%.*}
  dir=$(cd / && GOFLAGS=-mod=mod go mod download -json "k8s.io/kubernetes@$base" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  tree=$work/$base; mkdir -p "$tree/staging"
  cp -r "$dir/pkg" "$dir/plugin" "$dir/federation" "$tree/"
  [ ! -d "$dir/staging" ] || cp -r "$dir/staging" "$tree/"
  chmod -R u+w "$tree"
  rm -rf "$tree"/vendor
  mkdir -p "$tree/third_party/github.com/ugorji"
  cp -r "$dir/third_party/forked" "$tree/third_party/"
  cp -r "$src/v1.7.0/stock/third_party/github.com/ugorji/go" "$tree/third_party/github.com/ugorji/"
  chmod -R u+w "$tree"
  grep -v '=> ./staging' "$src/v1.7.0/stock/go.mod" | sed -E '/^\tk8s.io\/[a-z-]+ v0.0.0$/d; /^replace k8s.io/d; /^require k8s.io\/[a-z-]+ v0.0.0/d' > "$tree/go.mod"
  cp "$src/v1.7.0/stock/go.sum" "$tree/"
  if [ "$minor" = 1.6 ]; then
    for s in "$tree"/staging/src/k8s.io/*/; do
      n=$(basename "$s"); printf 'module k8s.io/%s\n\ngo 1.20\n' "$n" > "$s/go.mod"
      printf 'require k8s.io/%s v0.0.0\nreplace k8s.io/%s => ./staging/src/k8s.io/%s\n' "$n" "$n" "$n" >> "$tree/go.mod"
    done
    main='main-1.6.go.in'
  else
    main='main-1.3.go.in'
  fi
  if [ "$minor" = 1.3 ]; then # wants another runc; nothing here uses it
    rm "$tree/pkg/util/resource_container_linux.go"
    sed -i '/+build/d' "$tree/pkg/util/resource_container_unsupported.go"
  fi
  mkdir -p "$tree/cmd/holdfast-golden"
  cp schema.go.in "$tree/cmd/holdfast-golden/schema.go"; cp "$main" "$tree/cmd/holdfast-golden/main.go"
  (cd "$tree" && GOFLAGS='-mod=mod -buildvcs=false -trimpath' go build -o "$work/golden-$minor" ./cmd/holdfast-golden)
  "$work/golden-$minor" "$tables/$minor.json" "$here/$minor.json" "${manifests12[@]}"
done

# 1.7 to 1.9: module mode.
for base in v1.7.0 v1.8.0 v1.9.11; do
  minor=${base#v}; minor=${minor%.*}
  tree=$src/$base/stock
  if [ ! -d "$tree" ]; then
    echo "run.sh: $tree is missing: materialise that base first" >&2; exit 1
  fi
  main=$tree/cmd/holdfast-golden; mkdir -p "$main"
  cp schema.go.in "$main/schema.go"
  case $minor in
    1.7) core=k8s.io/kubernetes/pkg/api/v1 count=int64 ;;
    *) core=k8s.io/api/core/v1 count=int32 ;;
  esac
  sed -e "s#CORE#\"$core\"#" -e "s#COUNT#$count#" main-1.7.go.in > "$main/main.go"
  (cd "$tree" && GOFLAGS='-mod=mod -buildvcs=false -trimpath' go build -o "$work/golden-$minor" ./cmd/holdfast-golden)
  rm -r "$main"
  "$work/golden-$minor" "$tables/$minor.json" "$here/$minor.json" "${manifests[@]}"
done
