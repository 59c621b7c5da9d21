"""Which records a twin takes: those of one gNB, on one carrier.  No I/O; time comes in.

Rules:

1. The first record decides on the carrier and the sender's session.
2. Another session is followed when the one before has ended or was restarted, when it is a new one of a node that fell
   silent, or when that has been silent for `GIVEN_UP_NS`: a cut of seconds is no reason to look at another gNB.
3. What was left is followed again only if it comes up again.
"""

from typing import NamedTuple, Self

from ..blocks.observer import Record

GIVEN_UP_NS = 10_000_000_000


class Carrier(NamedTuple):
    """What all records must have in common."""

    n_prbs: int
    scs_hz: int
    centre_hz: float

    @classmethod
    def of(cls, record: Record) -> Self:
        """That of a record."""
        return cls(record.n_prbs, record.scs_hz, record.centre_hz)

    def __str__(self) -> str:
        return f"{self.n_prbs} PRBs, {self.scs_hz / 1e3:g} kHz, centre {self.centre_hz / 1e6:g} MHz"


class SourceSelection:
    """Tell it which sessions come and go, and ask it about each record.

    Attributes:
        epoch, carrier: what is followed; None before the first record.
    """

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.carrier: Carrier | None = None
        self._nodes: dict[int, str] = {}
        self._given_up_ns: dict[int, int] = {}  # epoch -> from when on it need not be waited for
        self._left: set[int] = set()

    def node(self, epoch: int | None) -> str:
        """The name of a session's node; empty if it never came up."""
        return self._nodes.get(epoch, "") if epoch is not None else ""

    def up(self, node: str, epoch: int) -> None:
        """A session is up."""
        self._nodes[epoch] = node
        self._given_up_ns.pop(epoch, None)
        self._left.discard(epoch)

    def down(self, epoch: int, reason: str, monotonic_ns: int) -> None:
        """A session is down; ``reason`` as in `PeerDown`."""
        ended = reason in ("closed", "restarted")
        self._given_up_ns[epoch] = monotonic_ns if ended else monotonic_ns + GIVEN_UP_NS

    def takes(self, record: Record, monotonic_ns: int) -> bool:
        """Whether a record is of what is followed, or is to be from now on."""
        if self.epoch is None:
            self.epoch, self.carrier = record.epoch, Carrier.of(record)
        if Carrier.of(record) != self.carrier:
            return False
        if record.epoch != self.epoch and self._gives_way(self.epoch, record.epoch, monotonic_ns):
            self._left.add(self.epoch)
            self.epoch = record.epoch
        return record.epoch == self.epoch

    def _gives_way(self, old: int, new: int, monotonic_ns: int) -> bool:
        if old not in self._given_up_ns or new in self._left:
            return False
        return monotonic_ns >= self._given_up_ns[old] or (self.node(old) == self.node(new) != "")
