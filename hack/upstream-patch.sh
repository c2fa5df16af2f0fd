#!/bin/bash
# Applies patches of patches/*/upstream to the release that their names say, in a folder outside of
# this checkout: inside of it `git apply` takes the folder for an ignored part of the repository,
# changes nothing and succeeds.
#
#   hack/upstream-patch.sh newest                newest release of kubernetes that the proxy has
#   hack/upstream-patch.sh apply PATCH...        applies them, prints what changed
#   hack/upstream-patch.sh test PATCH...         runs the tests of the packages that they change,
#                                                which must fail without the changes and pass with them
#
# The patches of one call are of one release, and are applied in their order.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
fail() { echo "upstream-patch.sh: $*" >&2; exit 1; }

newest() {
  cd / && GOFLAGS=-mod=mod go list -m -versions k8s.io/kubernetes | tr ' ' '\n' |
    grep -E '^v[0-9]+\.[0-9]+\.[0-9]+$' | sort -V | tail -n 1
}

# module prints module@version of a patch's name.
module() {
  local name
  name=$(basename "$1" | sed -nE 's,^[0-9]+-client-go-(v[0-9.]+)-.*\.patch$,k8s.io/client-go@\1,p
    s,^[0-9]+-(v[0-9.]+)-.*\.patch$,k8s.io/kubernetes@\1,p')
  [ -n "$name" ] || fail "$1: its name is no NNNN-vX.Y.Z-….patch"
  echo "$name"
}

# files prints what a patch changes.
files() { sed -nE 's,^(\+\+\+ b|--- a)/,,p' "$1" | sort -u; }

# changed prints the difference between the folders a and b, and fails if a file of a patch is
# not in it.
changed() {
  local all p f
  all=$(diff -ruN a b || :)
  for p in "$@"; do
    for f in $(files "$p"); do
      grep -qF "diff -ruN a/$f b/$f" <<< "$all" || fail "$p has changed nothing in $f"
    done
  done
  printf '%s\n' "$all"
}

# download prints the folder of a module, and asks the proxy a second and third time.
download() {
  local out
  for _ in 1 2 3; do
    if out=$(GOFLAGS=-mod=mod go mod download -json "$1"); then
      sed -nE 's/^\t"Dir": "(.*)",?$/\1/p' <<< "$out"
      return
    fi
    sed -nE 's/^\t"Error": "(.*)",?$/go mod download: \1/p' <<< "$out" >&2
    sleep 5
  done
  return 1
}

# packages prints the folders of a patch's tests.
packages() { for p in "$@"; do files "$p"; done | grep '_test\.go$' | xargs -n 1 dirname | sort -u; }

[ $# -gt 0 ] || usage
verb=$1
shift
case $verb in
newest)
  newest
  exit
  ;;
apply | test) [ $# -gt 0 ] || usage ;;
*) usage ;;
esac

patches=()
for p in "$@"; do
  [ -f "$p" ] || fail "$p: there is no such patch"
  patches+=("$(readlink -f "$p")")
  [ "$(module "$p")" = "$(module "$1")" ] || fail "$p and $1 are of two releases"
done
of=$(module "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GIT_CEILING_DIRECTORIES=$work # also where TMPDIR is inside of a checkout
cd "$work"
if [ "$of" = k8s.io/kubernetes@v1.9.11 ]; then
  source=$root/_output/src/v1.9.11/stock # with what today's Go needs
  [ -d "$source" ] || fail "there is no $source: run make source"
else
  source=$(download "$of") || fail "go mod download $of failed"
  [ -d "$source" ] || fail "go mod download $of names no folder"
fi

mkdir a b
for p in "${patches[@]}"; do
  for f in $(files "$p"); do
    if [ -f "$source/$f" ]; then
      install -D -m 0644 "$source/$f" "a/$f"
      install -D -m 0644 "$source/$f" "b/$f"
    fi
  done
done
for p in "${patches[@]}"; do (cd b && git apply "$p"); done
changed "${patches[@]}"
[ "$verb" = test ] || exit 0

# The tests alone first, then everything.
mapfile -t dirs < <(packages "${patches[@]}")
[ ${#dirs[@]} -gt 0 ] || fail "the patches have no tests"
cp -r "$source" tree
chmod -R u+w tree
cd tree
if [[ $of == k8s.io/kubernetes@* && $of != *@v1.9.11 ]]; then
  # The module does not hold the staging modules: they come from the proxy.
  export GOFLAGS=-mod=mod
  sed -i -e '/^replace (/,/^)/d' -e "s,\(k8s.io/[a-z-]*\) v0.0.0\$,\1 v0.${of#*@v1.}," go.mod
  rm -f go.work
fi
dirs=("${dirs[@]/#/./}")
run() { go test -trimpath -vet=off "${dirs[@]/#.\/staging\/src\//}"; }
# put takes over the changed files that grep with these arguments selects.
put() {
  for p in "${patches[@]}"; do files "$p"; done | sort -u | grep "$@" | while read -r f; do
    if [ -f "../b/$f" ]; then install -D -m 0644 "../b/$f" "$f"; else rm -f "$f"; fi
  done
}
put '_test\.go$'
if run; then fail "the tests of ${dirs[*]} pass without the patch"; fi
echo "=== these fail without the patch; now with it"
put -v '_test\.go$' || :
run
