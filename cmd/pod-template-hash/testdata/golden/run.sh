#!/usr/bin/env bash
# Writes the type tables and the golden values of package podtemplatehash by
# compiling and running the code of the old releases themselves.
# usage: run.sh [SRC]   SRC/<base>/stock are the trees of "holdfast source" (default _output/src)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
here=$PWD
root=$(cd ../../../.. && pwd)
src=${1:-$root/_output/src}
tables=$root/pkg/util/podtemplatehash/schema
manifests=("$here"/../manifests/*.json)
# 1.2 has no projected volumes, and gives an empty directory to a volume that it cannot see the source of.
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
