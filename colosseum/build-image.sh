#!/usr/bin/env bash
# Makes the image of an SRN's container, NAME.tar.gz in this folder, with twinlink and the radio API: on Debian 12 with GNU
# Radio, or with a gNB.
#
#   build-image.sh NAME [WHEELS]
#
# Needs root, mmdebstrap, a checkout in which `make setup` has run, and 4 GB below $TMPDIR (a tmpfs is much quicker).
# WHEELS is a folder with every Python package; without it they are fetched. The container itself fetches nothing.
# Environment:
#   AUTHORIZED_KEYS  file of the public keys that may log in as root and srn-user; without it, none can
#   GNB              tar file of the root file system of an image with OpenAirInterface's gNB (podman export), of Ubuntu 24.04
#                    or Debian 12 and later: the image is made of this, without GNU Radio
#   GNB_CONFIG       with GNB: the gNB's configuration file, which becomes /root/config/oai-gnb.conf
#   GNB_OPTIONS      with GNB: further options of the gNB, which become /root/config/oai-gnb.options
#   SOURCE           where Debian's packages come from, such as "deb http://deb.debian.org/debian bookworm main"
set -euo pipefail

stop() {
  echo "build-image: $*" >&2
  exit "${code:-2}"
}

[ $# -ge 1 ] || code=64 stop "usage: build-image.sh NAME [WHEELS]"
name=$1
[[ $name =~ ^[A-Za-z0-9-]{1,31}$ ]] ||
  code=64 stop "Colosseum takes image names of letters, digits and dashes, at most 31, not '$name'"
if [ $# -gt 1 ]; then
  PIP_FIND_LINKS=$(realpath -e "$2") || stop "there is no folder $2"
  export PIP_NO_INDEX=1 PIP_FIND_LINKS
fi
[ "$(id -u)" = 0 ] || stop "root is needed: the image holds files of other users"
if [ -n "${GNB:-}" ]; then
  GNB=$(realpath -e "$GNB") || stop "there is no file $GNB"
  [ -n "${GNB_CONFIG:-}" ] || stop "GNB takes GNB_CONFIG as well, the gNB's configuration file"
  GNB_CONFIG=$(realpath -e "$GNB_CONFIG") || stop "there is no file $GNB_CONFIG"
else
  command -v mmdebstrap >/dev/null || stop "mmdebstrap is missing: apt-get install mmdebstrap"
fi
out=$PWD/$name.tar.gz
if [ -n "${AUTHORIZED_KEYS:-}" ]; then AUTHORIZED_KEYS=$(realpath -e "$AUTHORIZED_KEYS"); fi
cd "$(dirname "$0")/.."
pip=$PWD/.venv/bin/pip
[ -x "$pip" ] || stop "there is no .venv here: make setup"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/rootfs

system=systemd-sysv,dbus,openssh-server,iproute2,iputils-ping,procps,rsync,ca-certificates,python3-venv
if [ -n "${GNB:-}" ]; then
  echo "build-image: the gNB's file system" >&2
  mkdir "$root"
  tar --extract --numeric-owner --directory "$root" --file "$GNB"
  [ -x "$root/opt/oai-gnb/bin/nr-softmodem" ] || stop "$GNB has no /opt/oai-gnb/bin/nr-softmodem: no image of OAI's gNB"
  cp --remove-destination /etc/resolv.conf "$root/etc/resolv.conf"
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # no service starts here
  chmod 755 "$root/usr/sbin/policy-rc.d"
  IFS=, read -r -a packages <<<"$system"
  inside=(env --unset=TMPDIR DEBIAN_FRONTEND=noninteractive chroot "$root") # there is no such folder in it
  "${inside[@]}" apt-get -qq update
  "${inside[@]}" apt-get -qq install --yes --no-install-recommends "${packages[@]}" >/dev/null
  rm "$root/usr/sbin/policy-rc.d" "$root/etc/resolv.conf"
else
  echo "build-image: Debian 12 with GNU Radio" >&2
  # gnuradio asks for any x-terminal-emulator and would bring gnome-terminal: xterm is a tenth of it.
  mmdebstrap --quiet --variant=minbase --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --include="$system,gnuradio,xterm" bookworm "$root" ${SOURCE:+"$SOURCE"}
fi

echo "build-image: Python packages" >&2
version=$(chroot "$root" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
"$pip" wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work/wheels" .
"$pip" download --quiet --dest "$work/wheels" --only-binary :all: --python-version "$version" \
  --require-hashes --requirement containers/requirements.txt

echo "build-image: twinlink and the radio API" >&2
cp -r "$work/wheels" "$root/tmp/wheels"
chroot "$root" python3 -m venv --system-site-packages /opt/twinlink
chroot "$root" /opt/twinlink/bin/pip --isolated install --quiet --no-cache-dir --disable-pip-version-check \
  --no-index --find-links /tmp/wheels 'twinlink[e3,recording,replay,metrics]'
# Here GNU Radio, numpy and the transports meet for the first time.
meet='from gnuradio import fft, gr; import twinlink_replay.twin.flowgraph'
if [ -n "${GNB:-}" ]; then meet='import twinlink_exporter.exporter'; fi
chroot "$root" /opt/twinlink/bin/python -c "import numpy, zenoh, zmq; $meet"
rm -r "$root/tmp/wheels"
mkdir -p "$root/opt/recordings" "$root/root/radio_api" "$root/root/config" "$root/logs"
cp examples/recordings/uplink-106prb.sigmf-* "$root/opt/recordings/"
cp colosseum/radio_api/*.sh colosseum/radio_api/*.py "$root/root/radio_api/"
cp colosseum/config/*.conf "$root/root/config/"
if [ -n "${GNB:-}" ]; then
  cp "$GNB_CONFIG" "$root/root/config/oai-gnb.conf"
  echo "${GNB_OPTIONS:-}" >"$root/root/config/oai-gnb.options"
fi
cp colosseum/systemd/*.service "$root/etc/systemd/system/"
chroot "$root" systemctl --quiet enable twinlink-boot.service
echo "PATH=/opt/twinlink/bin:\$PATH" >"$root/etc/profile.d/twinlink.sh"

chroot "$root" useradd --create-home --shell /bin/bash srn-user
if [ -n "${AUTHORIZED_KEYS:-}" ]; then
  for home in root home/srn-user; do install -D -m 600 "$AUTHORIZED_KEYS" "$root/$home/.ssh/authorized_keys"; done
  chroot "$root" chown -R srn-user: /home/srn-user/.ssh
fi
# Each container gets keys and an identity of its own when it starts.
rm -f "$root"/etc/ssh/ssh_host_*
mkdir -p "$root/etc/systemd/system/ssh.service.d"
cat >"$root/etc/systemd/system/ssh.service.d/host-keys.conf" <<'UNIT'
[Service]
ExecStartPre=
ExecStartPre=/usr/bin/ssh-keygen -A
ExecStartPre=/usr/sbin/sshd -t
UNIT
: >"$root/etc/machine-id"
# shellcheck source=/dev/null
read -r os release < <(. "$root/etc/os-release" && echo "$ID $VERSION_CODENAME")
rm -rf "${root:?}"/var/lib/apt/lists/* "${root:?}"/var/cache/apt/*.bin "${root:?}"/dev/*

echo "build-image: packing $out" >&2
cat >"$work/metadata.yaml" <<METADATA
architecture: $(uname -m)
creation_date: $(date +%s)
properties:
  description: twinlink $(git describe --always --dirty 2>/dev/null || echo "from a checkout without git")${GNB:+ with a gNB} on $os $release
  os: $os
  release: $release
METADATA
tar --create --gzip --numeric-owner --directory "$work" --file "$out" metadata.yaml rootfs
chmod 755 "$out"
echo "build-image: $out, $(du -m "$out" | cut -f 1) MB; to be checked with lxc image import $out --alias $name" >&2
