#!/usr/bin/env bash
# Builds a command of tools/ into _output/tools. The first argument is its name,
# holdfast or lab; the others go to go build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! command -v go >/dev/null; then
  echo "go is not on PATH: Holdfast builds with Go 1.26 (README.md, \"Build\")" >&2
  exit 1
fi
export GOFLAGS='' GOWORK=off GOTOOLCHAIN=local CGO_ENABLED=0
root=$PWD name=$1
cd tools
exec go build "${@:2}" -trimpath -buildvcs=false -o "$root/_output/tools/$name" "./cmd/$name"
