#!/usr/bin/env bash
# Installs what the system tests need and is missing: with apt-get as root, else says what is missing.
set -euo pipefail

packages=()
need() { command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] || packages+=("${@:2}"); }
need nginx nginx-light
need node nodejs
need npm npm
need promtool prometheus
need gcc gcc libc6-dev
need taskset util-linux
need systemd-analyze systemd
need bwrap bubblewrap
need curl curl
need openssl openssl

if [ "${#packages[@]}" -eq 0 ]; then
  exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "The system tests need what is missing here; its Debian packages are: ${packages[*]}." >&2
  exit 1
fi
echo "Installing ${packages[*]} ..." >&2
log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive
# RUNLEVEL=1 keeps the packages from starting their services: the tests start their own.
if ! { apt-get update && RUNLEVEL=1 apt-get install -y --no-install-recommends "${packages[@]}"; } >"$log" 2>&1; then
  echo "apt-get could not install ${packages[*]}; what it said is in $log." >&2
  exit 1
fi
rm -f "$log"
