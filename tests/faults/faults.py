"""Faults between and inside two nodes, one class for each.

A fault is begun and, after its duration, ended; both act on a `Place`.  Packet filters stand in the connector's
namespace, a table of their own for each fault, so that ending one leaves the others.
"""

import os
import signal
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from .world import World

MARK = "TWINLAB_GUEST"  # set in the virtual machine (tests/faults/guest.py), which has a clock of its own
HIDDEN_OCTETS = 1400  # a path that swallows what is longer, and says nothing: a PMTU hole


class Place(Protocol):
    """Where faults happen: the nodes "dt" (listens) and "rw" (connects), and what is between them."""

    world: World

    def signal(self, side: str, number: int) -> None:
        """Send a signal to a node."""

    def kill(self, side: str) -> None:
        """SIGKILL, and wait until it is gone."""

    def restart(self, side: str) -> None:
        """Start a killed node again, as a new session of the same name."""

    def tell(self, side: str, line: str) -> dict[str, Any]:
        """Give an order to a node (tests/faults/node.py) and return its answer."""

    def tell_proxy(self, line: str) -> None:
        """Give an order to the proxy (tests/faults/proxy.py), if this run has one."""

    def strangers(self, kind: str, count: int, seconds: float) -> None:
        """Connections of foreign programs to the listener's ports (tests/faults/strangers.py)."""


@dataclass(frozen=True)
class Fault(ABC):
    """Base of all faults.

    Attributes:
        needs_proxy: whether it acts on the proxy.
    """

    needs_proxy: ClassVar[bool] = False

    @abstractmethod
    def begin(self, place: Place) -> None:
        """Let it go wrong."""

    def end(self, place: Place) -> None:  # noqa: B027  most faults of a moment have nothing to end
        """Heal it."""


@dataclass(frozen=True)
class Filter(Fault):
    """A table of packet filters in the connector's namespace."""

    def rules(self) -> tuple[str, str]:
        """What happens to packets that come in, and to those that go out."""
        raise NotImplementedError

    def begin(self, place: Place) -> None:
        world = place.world
        chains = "\n".join(
            f"  chain {hook} {{\n    type filter hook {hook} priority 0; policy accept;\n    {where} {rule}\n  }}"
            for hook, where, rule in zip(
                ("input", "output"), (f'iifname "{world.cable}"', f'oifname "{world.cable}"'), self.rules(), strict=True
            )
            if rule
        )
        world.inside(world.rw, "nft", "-f", "-", text=f"table inet {self.table} {{\n{chains}\n}}\n")

    def end(self, place: Place) -> None:
        place.world.inside(place.world.rw, "nft", "delete", "table", "inet", self.table)

    @property
    def table(self) -> str:
        """Name of the table."""
        return f"lab_{type(self).__name__.lower()}"


@dataclass(frozen=True)
class Drop(Filter):
    """Loses packets at random, both ways."""

    per_mille: int

    def rules(self) -> tuple[str, str]:
        rule = f"numgen random mod 1000 < {self.per_mille} drop"
        return rule, rule


@dataclass(frozen=True)
class Partition(Filter):
    """Nothing passes, without an error."""

    def rules(self) -> tuple[str, str]:
        return "drop", "drop"


@dataclass(frozen=True)
class OneWay(Filter):
    """Nothing passes in one direction: to the Digital Twin ("rw-dt") or from it ("dt-rw")."""

    direction: str

    def rules(self) -> tuple[str, str]:
        return ("", "drop") if self.direction == "rw-dt" else ("drop", "")


@dataclass(frozen=True)
class Reset(Filter):
    """A firewall that answers everything with a TCP reset: connections break, and new ones are refused."""

    def rules(self) -> tuple[str, str]:
        rule = "meta l4proto tcp reject with tcp reset"
        return rule, rule


@dataclass(frozen=True)
class PmtuHole(Filter):
    """Long packets vanish, short ones pass: hellos alone do not show it."""

    def rules(self) -> tuple[str, str]:
        rule = f"meta length > {HIDDEN_OCTETS} drop"
        return rule, rule


@dataclass(frozen=True)
class KillSockets(Fault):
    """`ss -K` on one side: its established connections end with a reset, the program lives."""

    side: str

    def begin(self, place: Place) -> None:
        world = place.world
        world.inside(world.dt if self.side == "dt" else world.rw, "ss", "-K", "-t", "state", "established")


@dataclass(frozen=True)
class RateLimit(Fault):
    """A token bucket on both ends of the cable."""

    mbit_s: int

    def begin(self, place: Place) -> None:
        burst_kb = max(64, self.mbit_s // 4)  # 2 ms of a fast one: it must last until the kernel looks again
        for name in (place.world.dt, place.world.rw):
            place.world.inside(
                name, "tc", "qdisc", "replace", "dev", place.world.cable, "root", "tbf",
                "rate", f"{self.mbit_s}mbit", "burst", f"{burst_kb}kb", "latency", "100ms",
            )  # fmt: skip

    def end(self, place: Place) -> None:
        for name in (place.world.dt, place.world.rw):
            place.world.inside(name, "tc", "qdisc", "delete", "dev", place.world.cable, "root")


@dataclass(frozen=True)
class Stop(Fault):
    """SIGSTOP: the process is there, its kernel answers for it, and it does nothing."""

    side: str

    def begin(self, place: Place) -> None:
        place.signal(self.side, signal.SIGSTOP)

    def end(self, place: Place) -> None:
        place.signal(self.side, signal.SIGCONT)


@dataclass(frozen=True)
class Kill(Fault):
    """SIGKILL, and a restart after the duration."""

    side: str

    def begin(self, place: Place) -> None:
        place.kill(self.side)

    def end(self, place: Place) -> None:
        place.restart(self.side)


@dataclass(frozen=True)
class Slice(Fault):
    """The proxy passes on a few octets at a time, with pauses between."""

    octets: int
    pause_us: int
    needs_proxy = True

    def begin(self, place: Place) -> None:
        place.tell_proxy(f"slice {self.octets} {self.pause_us}")

    def end(self, place: Place) -> None:
        place.tell_proxy("pass")


@dataclass(frozen=True)
class Stall(Fault):
    """The proxy keeps its connections and passes nothing on."""

    needs_proxy = True

    def begin(self, place: Place) -> None:
        place.tell_proxy("stall")

    def end(self, place: Place) -> None:
        place.tell_proxy("pass")


@dataclass(frozen=True)
class ProxyReset(Fault):
    """The proxy resets every connection in the middle of whatever passes."""

    needs_proxy = True

    def begin(self, place: Place) -> None:
        place.tell_proxy("reset")


@dataclass(frozen=True)
class Strangers(Fault):
    """Connections to the listener that say nothing ("idle") or random octets ("garbage")."""

    kind: str
    count: int
    seconds: float

    def begin(self, place: Place) -> None:
        place.strangers(self.kind, self.count, self.seconds)


@dataclass(frozen=True)
class HandlerRaises(Fault):
    """The application's handler raises for so many messages."""

    side: str
    count: int

    def begin(self, place: Place) -> None:
        place.tell(self.side, f"raise {self.count}")


@dataclass(frozen=True)
class HandlerBlocks(Fault):
    """The application's handler sleeps."""

    side: str
    seconds: float

    def begin(self, place: Place) -> None:
        place.tell(self.side, f"block {self.seconds}")


@dataclass(frozen=True)
class HandlerSlow(Fault):
    """The application takes so long for each message."""

    side: str
    seconds: float

    def begin(self, place: Place) -> None:
        place.tell(self.side, f"slow {self.seconds}")

    def end(self, place: Place) -> None:
        place.tell(self.side, "slow 0")


@dataclass(frozen=True)
class HandlerSends(Fault):
    """The application's handler sends for so many messages."""

    side: str
    count: int

    def begin(self, place: Place) -> None:
        place.tell(self.side, f"answer {self.count}")


@dataclass(frozen=True)
class Fork(Fault):
    """The application forks; the child must get an error, and the parent's link must not suffer."""

    side: str

    def begin(self, place: Place) -> None:
        answer = place.tell(self.side, "fork")
        if answer["child"] != "LinkClosed":
            raise AssertionError(f"a forked child that used its parent's link got {answer['child']!r}, not LinkClosed")


@dataclass(frozen=True)
class FullDisk(Fault):
    """The handler records to a disk that is full, from now on: /dev/full."""

    side: str

    def begin(self, place: Place) -> None:
        place.tell(self.side, "record /dev/full")


@dataclass(frozen=True)
class Netem(Fault):
    """Whatever netem(8) does, on both ends of the cable.  The kernel must have it."""

    what: str

    def begin(self, place: Place) -> None:
        for name in (place.world.dt, place.world.rw):
            arguments = ["tc", "qdisc", "replace", "dev", place.world.cable, "root", "netem", "limit", "10000"]
            place.world.inside(name, *arguments, *self.what.split())

    def end(self, place: Place) -> None:
        for name in (place.world.dt, place.world.rw):
            place.world.inside(name, "tc", "qdisc", "delete", "dev", place.world.cable, "root")


@dataclass(frozen=True)
class ClockStep(Fault):
    """The time of day jumps, for both nodes; only in the virtual machine."""

    seconds: float

    def begin(self, place: Place) -> None:
        if MARK not in os.environ:
            raise AssertionError("the clock of this machine is not ours to step; use tests.faults.guest")
        time.clock_settime(time.CLOCK_REALTIME, time.time() + self.seconds)


FAULTS: dict[str, type[Fault]] = {
    kind.__name__: kind
    for kind in (
        Drop, Partition, OneWay, Reset, PmtuHole, KillSockets, RateLimit, Stop, Kill, Slice, Stall, ProxyReset,
        Strangers, HandlerRaises, HandlerBlocks, HandlerSlow, HandlerSends, Fork, FullDisk,
    )
}  # fmt: skip
