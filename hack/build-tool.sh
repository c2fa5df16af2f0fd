#!/usr/bin/env bash
# Builds the holdfast command, _output/tools/holdfast. Arguments go to go build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! command -v go >/dev/null; then
  echo "go is not on PATH: Holdfast builds with Go 1.26 (README.md, \"Build\")" >&2
  exit 1
fi
export GOFLAGS='' GOWORK=off GOTOOLCHAIN=local CGO_ENABLED=0
root=$PWD
cd tools
exec go build "$@" -trimpath -buildvcs=false -o "$root/_output/tools/holdfast" ./cmd/holdfast
