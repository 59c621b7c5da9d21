"""Queueing disciplines of Linux (tc(8)) for cyclic messages beside other traffic.

Messages of priority 7 are class 0, everything else is class 1.  A veth device never queues by itself, so that an order
of its queues shows only below a rate limit (tbf).  There, MQPRIO's place is taken by prio: MQPRIO leaves the order to
the queues of an adapter, and must be the root; prio serves class 0 first, as an adapter does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

PRIORITY = 7  # SO_PRIORITY of the cyclic messages
ETF_DELTA_NS = 2_000_000  # ETF wakes so long before a message is due, and releases it then: a veth has no LaunchTime
LINK_KBIT = 10_000_000  # speed that a veth device states, on which the kernel bases its arithmetic of CBS
BURST, LIMIT = "4k", "60k"  # of tbf, octets
_MAP = ("1", "1", "1", "1", "1", "1", "1", "0", *["1"] * 8)  # class by priority
_FRAME = 1522  # octets of the longest frame with a VLAN tag

FIFO, FQ_CODEL, MQPRIO, CBS, ETF, TAPRIO = NAMES = ("fifo", "fq_codel", "mqprio", "cbs", "etf", "taprio")


@dataclass(frozen=True, kw_only=True)
class Qdisc:
    """A queueing discipline of one device.

    Attributes:
        name: one of `NAMES`.
        rate_mbit: limit of the device in Mbit/s; 0 for none.
        idleslope_kbit: of CBS.
        cycle_ns, gate_ns: of TAPRIO: class 0 is sent only from the first to the second time of each cycle, the others
            only outside of it.
    """

    name: str
    rate_mbit: float = 0
    idleslope_kbit: int = 0
    cycle_ns: int = 0
    gate_ns: tuple[int, int] = (0, 0)

    def commands(self, device: str) -> list[str]:
        """The commands of tc that set it up."""
        if self.rate_mbit:
            rate = ("rate", f"{self.rate_mbit:g}mbit", "burst", BURST, "limit", LIMIT)
            return [_add(device, "root", "1:", "tbf", *rate), *self._below(device, "1:1", "2:")]
        return list(self._below(device, "root", "2:"))

    def _below(self, device: str, parent: str, handle: str) -> Sequence[str]:
        if self.name == FIFO:
            return [_add(device, parent, handle, "pfifo", "limit", "1000")]
        if self.name == FQ_CODEL:
            return [_add(device, parent, handle, "fq_codel")]
        if self.name == TAPRIO:
            return [_add(device, parent, handle, "taprio", *_CLASSES, *self._gates(), "clockid", "CLOCK_TAI")]
        classes = _add(device, parent, handle, "mqprio", *_CLASSES, "hw", "0")
        if parent != "root":
            classes = _add(device, parent, handle, "prio", "bands", "2", "priomap", *_MAP)
        child = {CBS: ["cbs", *self._credit()], ETF: ["etf", "clockid", "CLOCK_TAI", "delta", str(ETF_DELTA_NS)]}
        return [classes, *([_add(device, f"{handle}1", "3:", *child[self.name])] if self.name in child else [])]

    def _gates(self) -> list[str]:
        opens, closes = self.gate_ns
        entries = (("02", opens), ("01", closes - opens), ("02", self.cycle_ns - closes))
        schedule = [f"sched-entry S {mask} {length}".split() for mask, length in entries if length > 0]
        return ["base-time", "0", *chain(*schedule)]

    def _credit(self) -> list[str]:
        """IEEE 802.1Q, annex L: credit is used by a frame of ours, and earned during one of others."""
        slope = self.idleslope_kbit - LINK_KBIT
        high = -(-_FRAME * self.idleslope_kbit // LINK_KBIT)
        return ["idleslope", str(self.idleslope_kbit), "sendslope", str(slope), "hicredit", str(high),
                "locredit", str(_FRAME * slope // LINK_KBIT)]  # fmt: skip


_CLASSES = ("num_tc", "2", "map", *_MAP, "queues", "1@0", "1@1")


def _add(device: str, parent: str, handle: str, *what: str) -> str:
    place = parent if parent == "root" else f"parent {parent}"
    return f"qdisc add dev {device} {place} handle {handle} {' '.join(what)}"
