"""Where the two sides of a sweep run: on loopback, in two network namespaces, on two hosts.

A setting starts a worker on each side and provides the address of the Digital Twin, which listens.
"""

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from twinlink.errors import TwinlinkError
from twinlink.process.ports import free_ports

from .channels import PORTS
from .worker_handle import LocalWorker, Stopped, WorkerHandle

REAL_WORLD, DIGITAL_TWIN = "Real World", "Digital Twin"


class HostLost(Exception):
    """The other host cannot be reached, so that further measurements now would fail as well."""


class SettingError(TwinlinkError):
    """The setting cannot be made here: no root, no such program, no answer of the peer."""


@dataclass(frozen=True)
class Truth:
    """Known clock offsets, delays and losses, injected to test the instrument.

    Attributes:
        twin_clock: offset in ns and drift in ppm of the Digital Twin's wall clock.
        forward_delay_ns, back_delay_ns: added from Real World to Digital Twin, and back.
        drop_every: every nth message sent is withheld from the wire; 0 for none.
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
        relay: between them, or None.
    """

    real_world: WorkerHandle
    digital_twin: WorkerHandle
    listen: tuple[str, int]
    connect: tuple[str, int]
    relay: "subprocess.Popen[bytes] | None" = None

    def open(
        self, subject: str, options: dict[str, Any] | None, drop_every: int, within_s: float, stopped: Stopped
    ) -> dict[str, Any]:
        """Open a subject on both sides, first on the listening one; returns its options as used.

        Raises:
            WorkerLost, WorkerFailed, Interrupted: one side failed, or took longer than ``within_s``.
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
    """A context manager that creates a setting and removes it.

    Attributes:
        name: `loopback`, `netns` or `hosts`.
        counts_wire: whether the interfaces carry the traffic of the sweep alone.
    """

    name: str
    counts_wire = False

    def __init__(self, truth: Truth | None = None) -> None:
        self.truth = truth or Truth()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027  (nothing to take away, unless a setting says so)
        """Remove the setting."""

    def wait(self, stopped: Stopped) -> None:  # noqa: B027  (this host is always there)
        """Return when the other host is up.  Raises HostLost or Interrupted."""

    @abstractmethod
    def start(self) -> Pair:
        """New workers on both sides.  Raises SettingError, WorkerLost or HostLost."""

    def describe(self) -> dict[str, object]:
        """Properties of the setting, ready for JSON."""
        return {}

    def _local(self, listen: tuple[str, int], here: Sequence[str], there: Sequence[str]) -> Pair:
        """Two workers on this host, each with its command prefix, with the injected `Truth` between them."""
        truth = self.truth
        pair = Pair(LocalWorker(REAL_WORLD, here), LocalWorker(DIGITAL_TWIN, there, truth.twin_clock), listen, listen)
        if truth.forward_delay_ns or truth.back_delay_ns:
            near = free_ports(PORTS)
            given = (near, *listen, PORTS, truth.forward_delay_ns, truth.back_delay_ns)
            pair.relay = start_relay([*here, sys.executable, "-m", "twinlink_measure.relay", *map(str, given)])
            pair.connect = ("127.0.0.1", near)
        return pair


class Loopback(Setting):
    """Two processes on this host."""

    name = "loopback"

    def start(self) -> Pair:
        """New workers, and free ports."""
        port = free_ports(PORTS)
        at = ("127.0.0.1", port)
        return self._local(at, (), ())


def start_relay(command: Any) -> "subprocess.Popen[bytes]":
    """Run a program such as `twinlink_measure.relay`; it is ready, or has ended, when this returns."""
    relay = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert relay.stdout is not None
    if not relay.stdout.readline():
        relay.wait()
    return relay


def default() -> str:
    """`netns` for root, else `loopback`."""
    return "netns" if os.geteuid() == 0 else "loopback"
