#!/usr/bin/env bash
# Installs what the rules and unit tests need beyond Go, as far as it is missing:
# Debian packages, with apt-get, which wants root. The labs install their own.
# usage: install-test-packages.sh [integration|release|release-check]: also what
# upstream's integration suites, a release and its tests, or make release-check need
set -euo pipefail

# A program and the package that has it.
needs=(
  ansible-playbook:ansible-core
  git:git
  shellcheck:shellcheck
  script:bsdutils
  gcc:gcc
  ip:iproute2
)
case "${*-}" in
  '') ;;
  integration) needs+=(etcd:etcd-server) ;;
  release | release-check)
    needs+=(
      apt-ftparchive:apt-utils
      createrepo_c:createrepo-c
      gpg:gpg
      gpg-agent:gpg-agent
      mmdebstrap:mmdebstrap
      openssl:openssl
      rpm:rpm
    )
    if [[ $1 == release-check ]]; then
      needs+=(dnf:dnf docker:docker.io dockerd:docker.io lintian:lintian)
    fi
    ;;
  *)
    echo "usage: install-test-packages.sh [integration|release|release-check]" >&2
    exit 2
    ;;
esac
missing=()
for n in "${needs[@]}"; do
  command -v "${n%%:*}" >/dev/null || missing+=("${n#*:}")
done
# gcc alone does not link: the kubelet is built with cgo.
if [[ ! -e /usr/include/stdlib.h ]]; then
  missing+=(libc6-dev)
fi
if ((${#missing[@]} == 0)); then
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "missing packages: ${missing[*]}; there is no apt-get here: install them by hand" >&2
  exit 1
fi
if ((EUID != 0)); then
  echo "missing packages: install them as root with apt-get install ${missing[*]}" >&2
  exit 1
fi
# No service is started: etcd listens where a test's own would.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
echo "installing Debian packages: ${missing[*]}"
if ! apt-get -qq install --no-install-recommends -y "${missing[@]}" >/dev/null 2>&1; then
  # The package lists may be old or not there at all.
  if ! apt-get -qq update || ! apt-get -qq install --no-install-recommends -y "${missing[@]}" >/dev/null; then
    echo "cannot install ${missing[*]}: see what apt-get says above, and install them by hand" >&2
    exit 1
  fi
fi
