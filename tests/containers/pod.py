"""What the containers of a pod share: a network of their own with loopback alone, and the folder of the E3 sockets."""

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from .program import DIE_WITH_US, UID, Program

TOOLS = ("unshare", "nsenter", "setpriv", "ip")  # of util-linux and iproute2
Start = Callable[..., Program]  # a container: program, arguments


class Pod:
    """Holds containers while in a ``with`` block; what still runs at its end is killed.

    Args:
        folder: empty; for what the containers need.

    Attributes:
        dapps: to be mounted at /tmp/dapps, with the owner and the mode of an emptyDir.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dapps = folder / "dapps"
        self.dapps.mkdir()
        os.chown(self.dapps, 0, UID)
        self.dapps.chmod(0o2777)
        self._programs: list[Program] = []

    def __enter__(self) -> Self:
        hold = ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec cat"]
        self._holder = subprocess.Popen([*DIE_WITH_US, *hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdout
        assert self._holder.stdout.readline() == b"up\n"
        return self

    @property
    def network(self) -> str:
        """Path of the network namespace."""
        return f"/proc/{self._holder.pid}/ns/net"

    def start(self, command: Sequence[str]) -> Program:
        """Run a command, which makes a container, in the pod's network."""
        self._programs.append(Program(["nsenter", f"--net={self.network}", *command]))
        return self._programs[-1]

    def folder_for_next(self) -> Path:
        """A new folder for the next container."""
        folder = self.folder / f"container-{len(self._programs)}"
        folder.mkdir()
        return folder

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for program in self._programs:
            program.kill()
        self._holder.communicate()
