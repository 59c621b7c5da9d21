"""Two network namespaces joined by a cable, made for one run and always removed."""

import atexit
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

PREFIX = "twinlab"
TOOLS = ("ip", "nft", "ss", "tc")
ROOT = Path(__file__).parents[2]


class CannotBuild(Exception):
    """Namespaces cannot be made here; says why."""


def why_not() -> str | None:
    """What stands in the way of namespaces on this machine; None when nothing does."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"{', '.join(missing)} not found (packages iproute2, nftables)"
    try:
        with World("probe"):
            return None
    except CannotBuild as error:
        return str(error)


class World:
    """The listener's namespace and the connector's, 10.77.0.1 and 10.77.0.2, on a veth pair.

    Names hold the process's number; a new world first removes what a killed run has left behind.

    Attributes:
        dt, rw: names of the namespaces; the Digital Twin is where the listener runs.
        cable: name of the interface, the same in both.
    """

    listener = "10.77.0.1"
    connector = "10.77.0.2"
    cable = "twin0"

    def __init__(self, label: str) -> None:
        self.dt, self.rw = (f"{PREFIX}-{os.getpid()}-{label}-{side}" for side in ("dt", "rw"))

    def __enter__(self) -> Self:
        _remove_leftovers()
        atexit.register(self.remove)
        try:
            for name in (self.dt, self.rw):
                ip("netns", "add", name)
            ip("-n", self.dt, "link", "add", self.cable, "type", "veth", "peer", "name", self.cable, "netns", self.rw)
            for name, address in ((self.dt, self.listener), (self.rw, self.connector)):
                ip("-n", name, "address", "add", f"{address}/24", "dev", self.cable)
                ip("-n", name, "link", "set", "lo", "up")
                ip("-n", name, "link", "set", self.cable, "up")
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def remove(self) -> None:
        """Take both namespaces away, and with them the cable."""
        atexit.unregister(self.remove)
        for name in (self.dt, self.rw):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    def inside(self, name: str, *command: str, text: str | None = None) -> str:
        """Run a command in a namespace and return what it printed.  Raises CannotBuild with its complaint."""
        return _run(["ip", "netns", "exec", name, *command], text)

    def start(self, name: str, module: str, *arguments: str, errors: IO[bytes] | int | None = None) -> Any:
        """Start a Python module of this repository in a namespace; its standard input and output are pipes."""
        return subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip


def ip(*arguments: str) -> str:
    """Run ip(8)."""
    return _run(["ip", *arguments], None)


def _run(command: list[str], text: str | None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBuild(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _remove_leftovers() -> None:
    for line in ip("netns", "list").splitlines():
        name = line.split()[0] if line else ""
        parts = name.split("-")
        if parts[0] == PREFIX and parts[1].isdigit() and not Path("/proc", parts[1]).exists():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
