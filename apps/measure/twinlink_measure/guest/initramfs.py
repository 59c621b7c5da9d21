"""The first file system of the virtual machine: busybox, the modules that are needed, and an init script."""

import gzip
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .packages import Kernel

OWN_FOLDERS = ("tmp", "run", "var/tmp", "mnt")  # in the machine's memory; this host's are not seen
INIT_RUNS = "guest: the kernel has started"  # the first line on the console
INIT = """#!/bin/busybox sh
echo "{runs}"
/bin/busybox mkdir -p /proc /sys /dev /new
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
for module in {modules}; do /bin/busybox insmod /modules/$module || echo "no $module"; done
share=trans=virtio,version=9p2000.L,msize=512000
/bin/busybox mount -t 9p -o $share,ro,cache=loose root /new
for folder in {own}; do /bin/busybox mount -t tmpfs tmp /new/$folder; done
{shares}
/bin/busybox mount -t proc proc /new/proc
/bin/busybox mount -t sysfs sys /new/sys
/bin/busybox mount -t devtmpfs dev /new/dev
/bin/busybox mkdir -p /new/dev/shm
/bin/busybox mount -t tmpfs shm /new/dev/shm
/bin/busybox mount -t 9p -o $share out /new/mnt
/bin/busybox ip link set lo up
/bin/busybox chroot /new /bin/sh /mnt/command.sh
echo $? > /new/mnt/code
/bin/busybox sync
/bin/busybox poweroff -f
"""


def write(kernel: Kernel, wanted: Sequence[str], shares: Mapping[str, Path], path: Path) -> None:
    """Make the archive; ``shares``: folders of this host that are seen at their own place, read-only, by tag."""
    modules = list(_in_order(kernel, wanted))
    init = INIT.format(
        runs=INIT_RUNS,
        modules=" ".join(module.name for module in modules),
        own=" ".join(OWN_FOLDERS),
        shares="\n".join(_mount(tag, shlex.quote(f"/new{folder}")) for tag, folder in shares.items()),
    )
    files = {
        "bin/busybox": (0o755, kernel.busybox.read_bytes()),
        "init": (0o755, init.encode()),
        **{f"modules/{module.name}": (0o644, module.read_bytes()) for module in modules},
    }
    with gzip.open(path, "wb", compresslevel=1) as archive:
        for folder in ("bin", "modules"):
            archive.write(_entry(folder, 0o40755, b""))
        for name, (mode, octets) in files.items():
            archive.write(_entry(name, 0o100000 | mode, octets))
        archive.write(_entry("TRAILER!!!", 0, b""))


def _mount(tag: str, place: str) -> str:
    return f"/bin/busybox mkdir -p {place}\n/bin/busybox mount -t 9p -o $share,ro,cache=loose {tag} {place}"


def _in_order(kernel: Kernel, wanted: Iterable[str]) -> Iterable[Path]:
    """Module files, each after those it depends on (its own ``depends=`` says which)."""
    found = {path.name.removesuffix(".ko").replace("-", "_"): path for path in kernel.modules.rglob("*.ko")}
    loaded: dict[str, None] = {}

    def load(name: str) -> None:
        path = found.get(name.replace("-", "_"))
        if path is None or name in loaded:
            return  # built into the kernel
        says = re.search(rb"\0depends=([^\0]*)\0", path.read_bytes())
        for needed in says[1].decode().split(",") if says else []:
            load(needed)
        loaded[name] = None

    for name in wanted:
        load(name)
    return [found[name.replace("-", "_")] for name in loaded]


def _entry(name: str, mode: int, octets: bytes) -> bytes:
    """A member of a cpio archive, format "newc"."""
    path = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(octets), 0, 0, 0, 0, len(path), 0)
    head = b"070701" + b"".join(b"%08X" % value for value in fields) + path
    return _padded(head) + _padded(octets)


def _padded(octets: bytes) -> bytes:
    return octets + bytes(-len(octets) % 4)
