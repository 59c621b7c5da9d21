"""The Debian packages that a guest needs: what is installed, else downloaded into a cache and unpacked there.

Nothing is installed.  The cache is ``twinlink-guest`` in ``$XDG_CACHE_HOME``.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from twinlink.errors import TwinlinkError

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "twinlink-guest"
LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")
_MARK = "unpacked"  # in a folder of the cache that is complete
_KERNEL, _BUSYBOX, _QEMU, _RT_TESTS = "linux-image-amd64", "busybox-static", "qemu-system-x86", "rt-tests"
_NEEDED_MODULE = "sch_taprio.ko"  # of the kernel that is installed: uncompressed, as Debian 12 has its modules


class GuestError(TwinlinkError):
    """The guest cannot be made or run here; the message says what it needs."""


@dataclass(frozen=True)
class Kernel:
    """What the first file system is made of: a bootable image, the folder of its modules, and a static busybox."""

    image: Path
    modules: Path
    busybox: Path


def kernel() -> Kernel:
    """Debian's kernel.  Raises GuestError."""
    busybox = Path("/bin/busybox")
    if busybox.exists() and b"ld-linux" not in busybox.read_bytes():
        for image in sorted(Path("/boot").glob("vmlinuz-*-amd64"), reverse=True):
            modules = Path("/lib/modules", image.name.removeprefix("vmlinuz-"))
            if os.access(image, os.R_OK) and any(modules.rglob(_NEEDED_MODULE)):
                return Kernel(image, modules, busybox)
    folder = CACHE / "kernel"
    if not (folder / _MARK).exists():
        told = _output((_KERNEL, _BUSYBOX), "apt-cache", "depends", _KERNEL)
        named = re.search(r"Depends: (linux-image-\d\S*)", told)
        if named is None:
            raise _missing((_KERNEL, _BUSYBOX), f"apt knows no {_KERNEL}")
        _unpack((_KERNEL, _BUSYBOX), [named[1], _BUSYBOX], folder)
    (image,) = (folder / "boot").glob("vmlinuz-*")
    return Kernel(image, folder / "lib/modules", folder / "bin/busybox")


def qemu() -> list[str]:
    """The command that starts qemu.  Raises GuestError."""
    installed = shutil.which("qemu-system-x86_64")
    if installed is not None:
        return [installed]
    folder = CACHE / "qemu"
    if not (folder / _MARK).exists():
        planned = _output((_QEMU,), "apt-get", "install", "--simulate", "--no-install-recommends", _QEMU)
        _unpack((_QEMU,), [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")], folder)
    return [
        *_with_libraries(folder), str(folder / "usr/bin/qemu-system-x86_64"),
        "-L", str(folder / "usr/share/qemu"), "-L", str(folder / "usr/share/seabios"),
        "-L", str(folder / "usr/lib/ipxe/qemu"),
    ]  # fmt: skip


def cyclictest() -> list[str]:
    """The command that starts cyclictest.  Raises GuestError."""
    installed = shutil.which("cyclictest", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if installed is not None:
        return [installed]
    folder = CACHE / "rt-tests"
    if not (folder / _MARK).exists():
        _unpack((_RT_TESTS,), [_RT_TESTS, "libnuma1"], folder)
    return [*_with_libraries(folder), str(folder / "usr/bin/cyclictest")]


def _with_libraries(folder: Path) -> list[str]:
    return ["env", f"LD_LIBRARY_PATH={':'.join(str(folder / place) for place in LIBRARIES)}"]


def _unpack(wanted: Sequence[str], packages: Sequence[str], folder: Path) -> None:
    """Download packages and unpack them into a folder."""
    print(f"downloading {len(packages)} Debian packages ({', '.join(wanted)}) into {folder}", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    # Root reads and writes the cache as itself: apt's own user may not.
    _output(wanted, "apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", *packages, folder=folder)
    for package in folder.glob("*.deb"):
        _output(wanted, "dpkg-deb", "-x", str(package), str(folder))
        package.unlink()
    (folder / _MARK).touch()


def _output(wanted: Sequence[str], *command: str, folder: Path | None = None) -> str:
    try:
        return subprocess.run(
            command, check=True, capture_output=True, text=True, errors="backslashreplace", cwd=folder
        ).stdout
    except OSError as error:
        raise _missing(wanted, str(error)) from error
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"it ended with code {error.returncode}"]
        raise _missing(wanted, f"`{' '.join(command[:2])}` failed: {lines[-1]}") from error


def _missing(wanted: Sequence[str], why: str) -> GuestError:
    return GuestError(
        f"the virtual machine needs Debian 12's packages {' and '.join(wanted)}, which are neither installed nor to be "
        f"downloaded here ({why}): install them, with `apt-get install {' '.join(wanted)}`"
    )
