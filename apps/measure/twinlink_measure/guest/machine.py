"""A virtual machine that runs one command: qemu with Debian's kernel and this host's files.

It has two processors and no network.  It sees this host's files read-only, so the same Python and packages; ``/mnt``
is a folder of the host, for results.  Where KVM does not boot it, its processor is emulated (TCG): right for
correctness and for order, ten times too slow for figures in µs.
"""

import contextlib
import os
import platform
import queue
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from twinlink.process.guarded_thread import GuardedThread

from . import initramfs, packages
from .packages import GuestError

KVM, TCG = "kvm", "tcg"
MODULES = (
    "virtio_pci", "9pnet_virtio", "9p", "veth", "bridge", "sch_netem", "sch_tbf", "sch_prio", "sch_mqprio", "sch_cbs",
    "sch_etf", "sch_taprio", "sch_ingress", "cls_u32", "act_skbedit", "crc32c_generic", "nf_tables", "nft_numgen",
    "nft_reject_inet", "tcp_diag",
)  # fmt: skip
OUT = "/mnt"
SOURCES = Path(__file__).parents[3]  # where `twinlink` is imported from
_CODE, _SCRIPT, _INITRAMFS = "code", "command.sh", "initramfs"
_KVM_START_S = 15.0  # where the host is a virtual machine itself, KVM may accept a guest that never runs
_LOOK_S = 0.2
# An emulated processor is quicker without guards against speculation, and reads its own clock quicker than the board's.
_KERNEL_OPTIONS = "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable"


class GuestTimeout(GuestError):
    """The command did not end in time."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended in the machine.

    Attributes:
        code: its exit code; None if the machine was stopped, or ended without one.
        accelerator: `KVM` or `TCG`.
    """

    code: int | None
    accelerator: str


def run(
    command: str,
    folder: Path,
    *,
    timeout_s: float,
    memory: str = "1G",
    niceness: int = 0,
    on_line: Callable[[str], None] = print,
    stopped: Callable[[], bool] = lambda: False,
) -> Ended:
    """Boot the machine, run a shell command in it, and wait for its end.

    Args:
        command: for ``/bin/sh``, in the folder from which `twinlink` is imported.
        folder: what the machine sees as `OUT`; its own files are removed from it afterwards.
        timeout_s: of the whole, in s.
        memory: in qemu's notation.
        niceness: of the machine; below 0 only for root, else it is 0.
        on_line: is given each line on the console.
        stopped: whether the end was requested.

    Raises:
        GuestError: the machine cannot be run here; `GuestTimeout`: it was not done in time.
        OSError: the folder cannot be written.
    """
    if platform.machine() != "x86_64":
        raise GuestError(f"the virtual machine runs on x86-64; this machine is {platform.machine()}")
    console = [""]

    def show(line: str) -> None:
        console.append(line)
        on_line(line)

    try:
        qemu, options = packages.qemu(), _options(folder, command, memory)
        for accelerator in (KVM, TCG):
            if accelerator == KVM and not os.access("/dev/kvm", os.R_OK | os.W_OK):
                continue
            start_s = _KVM_START_S if accelerator == KVM else timeout_s
            processor = ("-accel", accelerator, "-cpu", "host" if accelerator == KVM else "max")
            if _watch([*qemu, *processor, *options], niceness, start_s, timeout_s, show, stopped):
                break
        else:
            raise GuestError(f"qemu does not start the virtual machine here; it says last: {console[-1]}")
        code = folder / _CODE
        return Ended(int(code.read_text()) if code.exists() else None, accelerator)
    finally:
        for name in (_CODE, _SCRIPT, _INITRAMFS):
            (folder / name).unlink(missing_ok=True)


def _watch(
    command: Sequence[str],
    niceness: int,
    start_s: float,
    timeout_s: float,
    on_line: Callable[[str], None],
    stopped: Callable[[], bool],
) -> bool:
    """Run qemu to its end; whether its kernel has started, or the end was requested."""
    began = time.monotonic()
    runs = False
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        assert process.stdout is not None
        _renice(process.pid, niceness)
        reader = GuardedThread(partial(_read, process.stdout, lines), "guest")
        reader.start()
        try:
            while not stopped():
                try:
                    line = lines.get(timeout=_LOOK_S)
                except queue.Empty:
                    line = ""
                passed_s = time.monotonic() - began
                if line is None:
                    return runs
                if line == initramfs.INIT_RUNS:
                    runs = True
                elif line:
                    on_line(line)
                if not runs and passed_s > start_s:
                    return False
                if passed_s > timeout_s:
                    raise GuestTimeout(f"the virtual machine was not done after {timeout_s:g} s, and was ended")
            return True
        finally:
            process.kill()
            reader.join()


def _renice(pid: int, niceness: int) -> None:
    """Set the niceness of a process and of its session, which Linux may schedule as one (sched(7), autogroup)."""
    with contextlib.suppress(OSError):  # not root, or no autogroup
        os.setpriority(os.PRIO_PROCESS, pid, niceness)
        Path(f"/proc/{pid}/autogroup").write_text(str(niceness))


def _read(console: IO[bytes], lines: "queue.SimpleQueue[str | None]") -> None:
    for line in console:
        lines.put(line.decode(errors="replace").rstrip())
    lines.put(None)


def _options(folder: Path, command: str, memory: str) -> list[str]:
    """Qemu's options but for its processor; writes what the machine boots from into the folder."""
    script = f"cd {shlex.quote(str(SOURCES))}\nexport PATH={shlex.quote(os.environ['PATH'])} HOME=/tmp\n{command}\n"
    (folder / _SCRIPT).write_text(script)
    (folder / _CODE).unlink(missing_ok=True)
    kernel = packages.kernel()
    shares = {f"share{number}": path for number, path in enumerate(_hidden())}
    initramfs.write(kernel, MODULES, shares, folder / _INITRAMFS)
    devices = []
    for tag, path in {"root": Path("/"), **shares, "out": folder.resolve()}.items():
        writes = "" if tag == "out" else ",readonly=on"
        devices += [
            "-fsdev",
            f"local,id={tag},path={str(path).replace(',', ',,')},security_model=none,multidevs=remap{writes}",
        ]
        devices += ["-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
    return [
        "-M", "pc", "-smp", "2", "-m", memory, "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
        "-kernel", str(kernel.image), "-initrd", str(folder / _INITRAMFS), "-append", _KERNEL_OPTIONS, *devices,
    ]  # fmt: skip


def _hidden() -> list[Path]:
    """Folders that the command needs and that lie below a folder which the machine has for itself."""
    needed = {SOURCES, Path(sys.prefix), Path(sys.base_prefix), packages.CACHE.resolve()}
    own = [Path("/", name) for name in initramfs.OWN_FOLDERS]
    below = sorted(path for path in needed if any(path.is_relative_to(folder) for folder in own))
    return [path for path in below if not any(path != other and path.is_relative_to(other) for other in below)]
