#!/usr/bin/env bash
# Prints the measured rows of docs/design/build.md, from a copy of the last
# commit in a temporary folder, on two cores. With --cold the build cache is an
# empty one; otherwise the user's. Run it on a machine that does nothing else:
# the load before each step is in its row.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
cold=
case "$*" in
  "") ;;
  --cold) cold=1 ;;
  *)
    echo "usage: hack/measure-build.sh [--cold]" >&2
    exit 2
    ;;
esac

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
git clone --quiet --shared . "$tmp/checkout"
cd "$tmp/checkout"
if [[ -n $cold ]]; then
  export GOCACHE=$tmp/gocache
fi

# measure LABEL COMMAND…: wall time, and the largest sum of the resident sets of
# all its processes, looked at twice a second.
measure() {
  local label=$1 start end pid load status=0
  shift
  load=$(cut -d' ' -f1 /proc/loadavg)
  start=$EPOCHREALTIME
  setsid taskset -c 0,1 "$@" >"$tmp/log" 2>&1 &
  pid=$!
  (
    while kill -0 "$pid" 2>/dev/null; do
      ps -s "$pid" -o rss= | awk '{ s += $1 } END { print s + 0 }' >>"$tmp/rss"
      sleep 0.5
    done
  ) &
  wait "$pid" || status=$?
  end=$EPOCHREALTIME
  wait
  if ((status != 0)); then
    cat "$tmp/log" >&2
    echo "$label: status $status" >&2
    exit 1
  fi
  awk -v label="$label" -v s="$start" -v e="$end" -v load="$load" -v command="$*" '
    $1 > peak { peak = $1 }
    END { printf "| %s | %.1f s | %d MiB | `%s` | %s |\n", label, e - s, peak / 1024, command, load }' "$tmp/rss"
  rm "$tmp/rss"
}

# one_line FILE: adds an exported variable to an overlay file. A change that
# leaves the compiled package as it is would be no change to its importers.
one_line() {
  printf '\nvar Measured%s = 1\n' "$RANDOM" >>"$1"
}

echo "| what | time | peak memory | command | load before |"
echo "|---|---|---|---|---|"
measure "tool, empty \`_output\`${cold:+ and build cache}" make tool
measure "\`make\`, empty \`_output\`${cold:+ and build cache}" make
measure "\`make\`, nothing to do" make
one_line pkg/kubelet/prober/holdfast_readiness_across_restart.go
measure "one line of an overlay file of the kubelet" make
one_line staging/src/k8s.io/client-go/tools/cache/rvcursor/cursor.go
measure "one line of an overlay file of client-go, which nearly everything imports" make

git checkout --quiet .
make >/dev/null 2>&1
_output/tools/holdfast build --variant stock >/dev/null 2>&1
echo
echo "| binary | bytes, stock | bytes, ours | modules linked, stock | ours |"
echo "|---|---|---|---|---|"
for b in kube-controller-manager kubelet; do
  row="| $b |"
  for v in stock ours; do
    row+=" $(stat -c %s "_output/bin/v1.9.11/$v/$b") |"
  done
  for v in stock ours; do
    row+=" $(go version -m "_output/bin/v1.9.11/$v/$b" | grep -c $'^\tdep\t') |"
  done
  echo "$row"
done
