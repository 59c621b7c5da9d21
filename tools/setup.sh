#!/usr/bin/env bash
# Makes a checkout ready: system packages (where root or sudo allows) and .venv/ with everything else.
# Does nothing, at once, when it has been done before and nothing that it depends on has changed.
# Exit codes: 0 ready; 2 something is missing and cannot be installed from here (the message says what to do).
set -euo pipefail
cd "$(dirname "$0")/.."

system_python=/usr/bin/python3 # not the first on PATH: GNU Radio's modules belong to the system's Python
venv=.venv
stamp=$venv/ready
log=$venv/setup.log
python_mb=247 # what pip fetches, about; measured on Debian 12

# "how to see that it is there | package | why"; the probe, not the package list, decides: an own build of GNU Radio counts.
needed=(
  "$system_python -c 'import ensurepip, venv' | python3-venv | .venv/"
  "test -e /etc/ssl/certs/ca-certificates.crt | ca-certificates | downloads by pip"
  # gnuradio asks for any x-terminal-emulator and would bring gnome-terminal: xterm is a tenth of it
  "$system_python -c 'from gnuradio import gr, blocks, fft' | gnuradio xterm | the replay at the twin"
)
useful=(
  "$system_python -c 'import gi; gi.require_version(\"Gtk\", \"3.0\")' | python3-gi gir1.2-gtk-3.0 | gnuradio-companion, on a desktop"
  "command -v mgen | mgen | traffic from MGEN"
  "command -v cc | gcc libc6-dev | the C node (c/) and its tests"
  "command -v ip | iproute2 | sweeps and tests in network namespaces"
  "PATH=\$PATH:/usr/sbin command -v nft | nftables | faults in network namespaces"
  "PATH=\$PATH:/usr/sbin command -v mosquitto | mosquitto | MQTT beside the other transports"
)

# shellcheck source=tools/progress.sh
. tools/progress.sh

stop() {
  say "$@"
  exit 2
}

absent_packages() { # of the lines given: the packages whose probe fails
  local line probe package
  for line in "$@"; do
    IFS='|' read -r probe package _ <<<"$line"
    bash -c "$probe" >/dev/null 2>&1 || printf '%s' "$package"
  done | xargs
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  else
    sudo "$@"
  fi
}

may_install() {
  command -v apt-get >/dev/null || return 1
  [ "$(id -u)" = 0 ] && return 0
  command -v sudo >/dev/null || return 1
  sudo -n true 2>/dev/null && return 0
  [ -t 0 ] && [ -t 2 ] && say "sudo is needed for system packages and may ask for your password" && sudo -v
}

size_mb() { # of the files that apt-get lists with these arguments
  { LC_ALL=C apt-get "$@" --print-uris -qq 2>>"$log" || :; } | awk '{ octets += $3 } END { printf "%d", octets / 1e6 + 1 }'
}

install_system_packages() {
  local missing_needed missing_useful start=$SECONDS
  missing_needed=$(absent_packages "${needed[@]}")
  missing_useful=$(absent_packages "${useful[@]}")
  [ -n "$missing_needed$missing_useful" ] || return 0
  local packages
  packages=$(xargs <<<"$missing_needed $missing_useful")
  local command="apt-get update && apt-get install --no-install-recommends $packages"
  if ! may_install; then
    if [ -n "$missing_needed" ]; then
      say "these system packages are missing and this account may not install them: $packages"
      stop "ask an administrator to run as root (or the like on a system without apt): $command"
    fi
    say "going on without these system packages, which only some parts need: $missing_useful"
    say "an administrator can add them: $command"
    return 0
  fi
  say "fetching the lists of packages (10 to 50 MB, under a minute at 1 MB/s)"
  as_root apt-get update -qq >>"$log" 2>&1 </dev/null || say "apt-get update reported an error (see $log); trying with what is known"
  local mb disk=""
  # shellcheck disable=SC2086 # a list of words
  mb=$(size_mb install --no-install-recommends $packages)
  [[ $packages == *gnuradio* ]] && disk=", then 1.4 GB to unpack (1 to 5 min)"
  say "installing system packages: $packages"
  say "$(to_fetch "$mb")$disk"
  # shellcheck disable=SC2086
  if ! as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get install -y -qq --no-install-recommends \
    -o DPkg::Lock::Timeout=300 -o APT::Status-Fd=1 $packages 2>>"$log" </dev/null | show_apt "$mb"; then
    tail -n 15 "$log" >&2
    stop "apt-get could not install these packages; the lines above say why (all of it: $log). By hand: $command"
  fi
  missing_needed=$(absent_packages "${needed[@]}")
  [ -z "$missing_needed" ] || stop "installed, but still not usable by $system_python: $missing_needed (see $log)"
  say "system packages are in place ($((SECONDS - start)) s)"
}

install_python_packages() {
  local start=$SECONDS
  if [ ! -x "$venv/bin/pip" ]; then
    say "making $venv/ from $system_python, with the system's packages visible for GNU Radio"
    "$system_python" -m venv --system-site-packages "$venv" >>"$log" 2>&1 ||
      stop "$system_python -m venv failed: $(tail -n 3 "$log")"
  fi
  say "installing Python packages into $venv/: about $(to_fetch "$python_mb"), then 20 s to 2 min to install"
  if ! PIP_USER=0 "$venv/bin/python" -m pip install --progress-bar off --no-input --disable-pip-version-check \
    --editable '.[dev,replay]' --constraint constraints.txt 2>>"$log" </dev/null | show_pip "$python_mb"; then
    tail -n 15 "$log" >&2
    stop "pip could not install the Python packages; the lines above say why (all of it: $log). Is the network there?"
  fi
  # here GNU Radio and numpy meet for the first time
  "$venv/bin/python" -c 'from gnuradio import gr; import numpy, zmq, zenoh' >>"$log" 2>&1 ||
    stop "GNU Radio, numpy and the transports do not load together in $venv/: $(tail -n 1 "$log")"
  say "Python packages are in place ($((SECONDS - start)) s)"
}

unpack() { # PROGRAM TESTS PACKAGE...: for the tests, into .venv/PACKAGE; installed, the package would start a service
  local program=$1 tests=$2 folder=$venv/$3 package found
  PATH=$PATH:/usr/sbin command -v "$program" >/dev/null && return 0
  [ -n "$(find "$folder" -name "$program" -type f -perm -u+x 2>/dev/null)" ] && return 0
  mkdir -p "$folder"
  say "fetching $program for $tests: $(to_fetch "$(size_mb download "$3")")"
  for package in "${@:3}"; do # a distribution may have the program in any of them, and lack the others
    (cd "$folder" && apt-get download -qq "$package" && dpkg-deb -x "$package"_*.deb . && rm "$package"_*.deb) >>"$log" 2>&1 || true
  done
  found=$(find "$folder" -name "$program" -type f -perm -u+x)
  [ -n "$found" ] && "$found" --version >>"$log" 2>&1 && return 0
  say "going on without $program: $tests will be skipped (see $log)"
  rm -rf "$folder"
}

[ -x "$system_python" ] || stop "$system_python is missing: install the system's python3"
"$system_python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  stop "$("$system_python" --version) is too old: twinlink needs 3.11 (Debian 12, Ubuntu 24.04 or newer)"

exec 9<tools/setup.sh
flock 9 # `make demo` and `make test` at once, on a fresh clone

# What the environment was made from: a checkout that moved or a new system Python means a new one.
place="$("$system_python" --version) $PWD"
inputs=$(cksum pyproject.toml constraints.txt tools/setup.sh | cksum)
ready="$place"$'\n'"$inputs"
[ "$(cat "$stamp" 2>/dev/null)" = "$ready" ] && exit 0

if [ -e "$venv/bin" ] && { ! "$venv/bin/python" -c '' 2>/dev/null || { [ -e "$stamp" ] && [ "$(head -n 1 "$stamp")" != "$place" ]; }; }; then
  say "$venv/ was made elsewhere, by another Python or not to its end: making it again"
  rm -rf "$venv"
fi
mkdir -p "$venv"
install_system_packages
install_python_packages
unpack chronyd "the test of NTP" chrony
unpack promtool "the tests of metrics and alerts" prometheus promtool
printf '%s\n' "$ready" >"$stamp"
say "ready; the command is $venv/bin/twinlink"
