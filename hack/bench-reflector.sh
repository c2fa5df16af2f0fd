#!/usr/bin/env bash
# Compares the reflector of both trees: an event's way through a watch, stock
# and ours in turn, as benchstat's table. The linker puts the functions in
# another order in each round, else the place of a loop in the binary decides
# more than the code does. Run it on a machine that does nothing else.
set -euo pipefail

rounds=${1:-20}
if [[ ! $rounds =~ ^[1-9][0-9]*$ || $# -gt 1 ]]; then
  echo "usage: hack/bench-reflector.sh [ROUNDS]" >&2
  exit 2
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
base=$(basename "$(dirname "$(grep -l '"default": true' bases/*/base.json)")")
root=$PWD trees=$PWD/_output/src/$base
package=k8s.io/client-go/tools/cache
file=staging/src/$package/reflector_monotonic_rv_bench_test.go
for v in stock ours; do
  if [[ ! -d $trees/$v ]]; then
    echo "there is no $trees/$v: run 'make source' first" >&2
    exit 1
  fi
done

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
printf '{"Replace":{"%s":"%s"}}' "$trees/stock/$file" "$root/$file" >"$tmp/overlay.json"
for ((i = 1; i <= rounds; i++)); do
  for v in stock ours; do
    (cd "$trees/$v" && go test -vet=off -c -o "$tmp/$v.test" -overlay "$tmp/overlay.json" -ldflags=-randlayout="$i" "$package")
  done
  for v in stock ours stock ours; do
    "$tmp/$v.test" -test.run xxx -test.bench ReflectorWatchHandler -test.benchtime 100000x -test.cpu 1 >>"$tmp/$v.txt"
  done
  echo "round $i of $rounds" >&2
done
cd "$tmp"
go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da stock=stock.txt ours=ours.txt
