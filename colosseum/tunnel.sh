#!/usr/bin/env bash
# Holds a tunnel to a twin on an SRN of an interactive session; then the exporter connects to tcp/127.0.0.1:7447 here.
#
#   tunnel.sh zenoh|zeromq TEAM-srnNNN [options of ssh...]
#
# It ends when the connection does, or when a port is in use: whatever starts it starts it again.
set -eu
port=7447

usage() {
  echo "usage: $0 zenoh|zeromq TEAM-srnNNN [options of ssh, such as -F ssh_config]" >&2
  exit 64
}

[ $# -ge 2 ] || usage
case $1 in
  zenoh) ports=("$port") ;;
  zeromq) ports=("$port" $((port + 1))) ;; # its two directions
  *) usage ;;
esac
host=$2
shift 2

forwards=()
for each in "${ports[@]}"; do forwards+=(-L "127.0.0.1:$each:127.0.0.1:$each"); done
# A connection that is dead is noticed within 15 s.
exec ssh -N -o ExitOnForwardFailure=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=3 "${forwards[@]}" "$@" "$host"
