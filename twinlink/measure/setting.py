"""Where the two sides of a sweep stand: on loopback, in two network namespaces, on two hosts.

A setting starts a worker at either side and says at which address the Digital Twin, which listens, is reached.
"""

import os
import random
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from ..errors import TwinlinkError
from .channels import PORTS
from .worker_handle import LocalWorker, Stopped, WorkerHandle

REAL_WORLD, DIGITAL_TWIN = "Real World", "Digital Twin"
_FIRST, _LAST = 20000, 32000  # below the range that the system takes for outgoing connections


class HostLost(Exception):
    """The other host cannot be reached: whatever should be measured there now would end in the same way."""


class SettingError(TwinlinkError):
    """The setting cannot be made here: no root, no such program, nobody at the peer."""


@dataclass(frozen=True)
class Truth:
    """What is put in on purpose, to see whether it comes out: for tests of the instrument.

    Attributes:
        twin_clock: offset in ns and drift in ppm of the Digital Twin's wall clock.
        forward_delay_ns, back_delay_ns: added on the way from Real World to Digital Twin, and back.
        drop_every: of the messages that are sent, every so many-th never gets to the wire; 0 for none.
    """

    twin_clock: tuple[int, float] | None = None
    forward_delay_ns: int = 0
    back_delay_ns: int = 0
    drop_every: int = 0


@dataclass
class Pair:
    """The workers of one subject in one round.

    Attributes:
        real_world, digital_twin: the two sides.
        listen: host and port where the Digital Twin listens, as it sees it.
        connect: the same as the Real World sees it.
        relay: between them, where there is one.
    """

    real_world: WorkerHandle
    digital_twin: WorkerHandle
    listen: tuple[str, int]
    connect: tuple[str, int]
    relay: "subprocess.Popen[bytes] | None" = None

    def open(
        self, subject: str, options: dict[str, Any] | None, drop_every: int, within_s: float, stopped: Stopped
    ) -> dict[str, Any]:
        """Open a subject at both sides, first where it listens; returns its options as used.

        Raises:
            WorkerLost, WorkerFailed, Interrupted: one side could not, or not within ``within_s``.
        """
        sides = (
            (self.digital_twin, True, self.listen, "digital-twin"),
            (self.real_world, False, self.connect, "real-world"),
        )
        for worker, listening, (host, port), node in sides:
            said = worker.ask(
                "open", within_s, stopped, subject=subject, listening=listening, host=host, port=port, node=node,
                options=options, drop_every=drop_every,
            )  # fmt: skip
        return dict(said["options"])

    def end(self) -> None:
        """End both."""
        for worker in (self.real_world, self.digital_twin):
            worker.end()
        if self.relay is not None:
            self.relay.kill()
            self.relay.communicate()


class Setting(ABC):
    """A context manager that makes what is needed, and takes it away again.

    Attributes:
        name: `loopback`, `netns` or `hosts`.
        counts_wire: whether the octets that a worker sent are those of the sweep alone.
    """

    name: str
    counts_wire = False

    def __init__(self, truth: Truth | None = None) -> None:
        self.truth = truth or Truth()

    def __enter__(self) -> Self:
        return self

    def __exit__(  # noqa: B027  (nothing to take away, unless a setting says so)
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing stays behind."""

    def wait(self, stopped: Stopped) -> None:  # noqa: B027  (this host is always there)
        """Return when the other host is there, at once or after a while.  Raises HostLost or Interrupted."""

    @abstractmethod
    def start(self) -> Pair:
        """Fresh workers at both sides.  Raises SettingError, WorkerLost or HostLost."""

    def describe(self) -> dict[str, object]:
        """What a reader should know of it, ready for JSON."""
        return {}

    def _local(self, listen: tuple[str, int], here: Sequence[str], there: Sequence[str]) -> Pair:
        """Two workers on this host, with what is known to be wrong between them; each behind its command prefix."""
        truth = self.truth
        pair = Pair(LocalWorker(REAL_WORLD, here), LocalWorker(DIGITAL_TWIN, there, truth.twin_clock), listen, listen)
        if truth.forward_delay_ns or truth.back_delay_ns:
            near = free_ports(PORTS, range(listen[1], listen[1] + PORTS))
            given = (near, *listen, PORTS, truth.forward_delay_ns, truth.back_delay_ns)
            pair.relay = start_relay([*here, sys.executable, "-m", "twinlink.measure.relay", *map(str, given)])
            pair.connect = ("127.0.0.1", near)
        return pair


class Loopback(Setting):
    """Two processes on this host."""

    name = "loopback"

    def start(self) -> Pair:
        """Fresh workers, and ports that are free now."""
        port = free_ports(PORTS)
        at = ("127.0.0.1", port)
        return self._local(at, (), ())


def start_relay(command: Any) -> "subprocess.Popen[bytes]":
    """Run `twinlink.measure.relay` by a command as `subprocess.Popen` takes it; it listens when this returns."""
    relay = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert relay.stdout is not None
    relay.stdout.readline()
    return relay


def free_ports(count: int, taken: Sequence[int] = ()) -> int:
    """The first of ``count`` consecutive TCP ports that nobody uses on loopback, none of them among the ``taken``."""
    for _ in range(1000):
        port = random.randrange(_FIRST, _LAST)
        if any(port <= one < port + count for one in taken):
            continue
        try:
            for candidate in range(port, port + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", candidate))
        except OSError:
            continue
        return port
    raise SettingError(f"no {count} consecutive TCP ports are free from {_FIRST} to {_LAST}")


def default() -> str:
    """`netns` for root, else `loopback`."""
    return "netns" if os.geteuid() == 0 else "loopback"
