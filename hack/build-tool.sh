#!/usr/bin/env bash
# Builds a program of a module of this repository, static.
# usage: build-tool.sh MODULE PACKAGE OUTPUT [flags of go build]
set -euo pipefail
if (($# < 3)); then
  echo "usage: build-tool.sh MODULE PACKAGE OUTPUT [flags of go build]" >&2
  exit 2
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! command -v go >/dev/null; then
  echo "go is not on PATH: Holdfast builds with Go 1.26 (README.md, \"Build\")" >&2
  exit 1
fi
# Only releases that print "go1.N" are compared; others are left to go itself.
minor=$(sed -nE 's/^go 1\.([0-9]+).*/\1/p' "$1/go.mod")
if [[ $(GOTOOLCHAIN=local go env GOVERSION) =~ ^go1\.([0-9]+) ]] && ((BASH_REMATCH[1] < minor)); then
  echo "$(command -v go) is ${BASH_REMATCH[0]}, and $1/go.mod wants Go 1.$minor or later (README.md, \"Build\"): put that first on PATH" >&2
  exit 1
fi
module=$1 package=$2 output=$PWD/$3
shift 3
# GOGC as in tools/build/builder (compilerGC).
export GOFLAGS='' GOWORK=off GOTOOLCHAIN=local CGO_ENABLED=0 GOGC="${GOGC:-800}"
cd "$module"
exec go build "$@" -trimpath -buildvcs=false -o "$output" "$package"
