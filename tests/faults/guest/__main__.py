"""Runs the lab inside a virtual machine: `python -m tests.faults.guest [--folder F] -- <options of tests.faults.lab>`.

Debian 12's kernel under qemu without KVM: right for correctness, far too slow for figures.  The machine sees this
host's files read-only, so the same Python, the same packages, the same sources.  What is missing here is fetched from
the Debian mirror into a cache and unpacked there; nothing is installed.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ..faults import MARK
from ..world import ROOT
from .initramfs import write

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "twinlink-guest"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
MODULES = (
    "virtio_pci", "9pnet_virtio", "9p", "veth", "sch_netem", "sch_tbf", "crc32c_generic", "nf_tables", "nft_numgen",
    "nft_reject_inet", "tcp_diag",
)  # fmt: skip
MEMORY = "3G"
LEDGERS = "/tmp/ledgers"  # in the machine's memory: its way to our disk is slow


def main() -> int:
    """Prepare, boot, and end with the lab's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.guest", description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the lab keeps the ledgers (a temporary folder)")
    parser.add_argument("--command", help="run this in the machine instead of the lab")
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds (3600)")
    parser.add_argument("lab", nargs="*", help="options of the lab, after --")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="twinlab-guest-"))
    folder.mkdir(parents=True, exist_ok=True)
    lab = [sys.executable, "-m", "tests.faults.lab", "--out", LEDGERS, *given.lab]
    command = given.command or f"{shlex.join(lab)} || {{ code=$?; cp -r {LEDGERS} /mnt; exit $code; }}"
    (folder / "code").unlink(missing_ok=True)
    began = time.monotonic()
    try:
        qemu, kernel = prepare()
        subprocess.run(
            [*qemu, *machine(kernel, folder, command)], timeout=given.timeout, stdin=subprocess.DEVNULL, check=True
        )
    except subprocess.TimeoutExpired:
        print(f"the machine was not done after {given.timeout:g} s", file=sys.stderr)
        return 3
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"the machine cannot be run: {error}; it needs Debian 12's mirror, or qemu-system-x86", file=sys.stderr)
        return 2
    code = folder / "code"
    print(f"{time.monotonic() - began:.0f} s; {folder}")
    return int(code.read_text()) if code.exists() else 3


def prepare() -> tuple[list[str], Path]:
    """Fetch and unpack what is missing; the command that starts qemu, and the unpacked kernel's folder."""
    kernel = CACHE / "kernel"
    if not (kernel / "unpacked").exists():
        (name,) = [
            line.split()[1]
            for line in _output("apt-cache", "depends", "linux-image-amd64").splitlines()
            if "Depends: linux-image-" in line
        ]
        unpack([name, "busybox-static"], kernel)
    qemu = shutil.which("qemu-system-x86_64")
    if qemu is not None:
        return [qemu], kernel
    folder = CACHE / "qemu"
    if not (folder / "unpacked").exists():
        planned = _output("apt-get", "install", "--simulate", "--no-install-recommends", "qemu-system-x86")
        unpack([line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")], folder)
    paths = [str(folder / LIBRARIES), str(folder / "lib/x86_64-linux-gnu")]
    return [
        "env", f"LD_LIBRARY_PATH={':'.join(paths)}", str(folder / "usr/bin/qemu-system-x86_64"),
        "-L", str(folder / "usr/share/qemu"), "-L", str(folder / "usr/share/seabios"),
        "-L", str(folder / "usr/lib/ipxe/qemu"),
    ], kernel  # fmt: skip


def unpack(packages: list[str], folder: Path) -> None:
    """Download packages and unpack them into a folder."""
    print(f"fetching {len(packages)} packages into {folder}", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", "-q", *packages], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
        package.unlink()
    (folder / "unpacked").touch()


def machine(kernel: Path, folder: Path, command: str) -> list[str]:
    """Qemu's options: two processors, this host's files read-only, the folder as /mnt."""
    script = folder / "command.sh"
    script.write_text(f"cd {shlex.quote(str(ROOT))}\nexport PATH={os.environ['PATH']} HOME=/tmp {MARK}=1\n{command}\n")
    initramfs = folder / "initramfs"
    write(kernel, MODULES, ROOT, initramfs)
    (image,) = (kernel / "boot").glob("vmlinuz-*")
    shares = []
    read_only = ",readonly=on"
    for tag, path, options in (
        ("root", Path("/"), read_only), ("sources", ROOT, read_only), ("out", folder.resolve(), "")
    ):  # fmt: skip
        shares += ["-fsdev", f"local,id={tag},path={path},security_model=none,multidevs=remap{options}"]
        shares += ["-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
    return [
        "-M", "pc", "-cpu", "max", "-smp", "2", "-m", MEMORY, "-nodefaults", "-display", "none", "-serial", "stdio",
        "-no-reboot", "-kernel", str(image), "-initrd", str(initramfs), "-append", "console=ttyS0 quiet panic=-1",
        *shares,
    ]  # fmt: skip


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
