"""Source selection: a twin follows one gNB on one carrier.  No I/O; time is passed in.

Rules:

1. The first record determines the carrier and the sender's session.
2. The twin follows another session when the current one has ended or was restarted, when the new session is of the same
   node and the current one is down, or when the current one has been down for `ABANDON_AFTER_NS`: an interruption of
   seconds is no reason to follow another gNB.
3. An abandoned session is followed again only after it has come up again.
"""

from typing import NamedTuple, Self

from ..blocks.observer import Record

ABANDON_AFTER_NS = 10_000_000_000


class Carrier(NamedTuple):
    """Properties that all records have in common."""

    n_prbs: int
    scs_hz: int
    centre_hz: float
    has_samples: bool = True

    @classmethod
    def of(cls, record: Record) -> Self:
        """The carrier of a record."""
        return cls(record.n_prbs, record.scs_hz, record.centre_hz, record.power is None)

    def __str__(self) -> str:
        what = "" if self.has_samples else ", power only"
        return f"{self.n_prbs} PRBs, {self.scs_hz / 1e3:g} kHz, centre {self.centre_hz / 1e6:g} MHz{what}"


class SourceSelection:
    """Takes the sessions' changes of state, and decides about each record.

    Attributes:
        epoch, carrier: session and carrier that are followed; None before the first record.
    """

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.carrier: Carrier | None = None
        self._nodes: dict[int, str] = {}
        self._abandon_ns: dict[int, int] = {}  # epoch -> monotonic time from which it may be abandoned
        self._abandoned: set[int] = set()

    def node(self, epoch: int | None) -> str:
        """The name of a session's node; empty if the session never came up."""
        return self._nodes.get(epoch, "") if epoch is not None else ""

    def up(self, node: str, epoch: int) -> None:
        """A session is up."""
        self._nodes[epoch] = node
        self._abandon_ns.pop(epoch, None)
        self._abandoned.discard(epoch)

    def down(self, epoch: int, reason: str, monotonic_ns: int) -> None:
        """A session is down; ``reason`` as in `PeerDown`."""
        ended = reason in ("closed", "restarted")
        self._abandon_ns[epoch] = monotonic_ns if ended else monotonic_ns + ABANDON_AFTER_NS

    def accepts(self, record: Record, monotonic_ns: int) -> bool:
        """Whether a record is of the session that is followed, which it may change."""
        if self.epoch is None:
            self.epoch, self.carrier = record.epoch, Carrier.of(record)
        if Carrier.of(record) != self.carrier:
            return False
        if record.epoch != self.epoch and self._may_switch(self.epoch, record.epoch, monotonic_ns):
            self._abandoned.add(self.epoch)
            self.epoch = record.epoch
        return record.epoch == self.epoch

    def _may_switch(self, old: int, new: int, monotonic_ns: int) -> bool:
        if old not in self._abandon_ns or new in self._abandoned:
            return False
        return monotonic_ns >= self._abandon_ns[old] or (self.node(old) == self.node(new) != "")
