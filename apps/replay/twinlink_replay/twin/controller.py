"""From filtered detections to PRB blocks: what to request of the gNB, and when.  No I/O; time is passed in.

Rules:

1. A PRB is requested as soon as interference is detected there, and released `HOLD_NS` after the last detection.  The
   list changes at most every `SPACING_NS` by the records' times: an interferer's PRBs are detected within a few records
   of each other.
2. A list replaces the last one.  While it is needed, it is sent again with the same id after half its validity.
3. When no PRB is needed any more, an empty list is sent.
4. A rejected list is not repeated before `RETRY_NS`, unless it changes; before `SYNC_RETRY_NS`, if it was rejected
   because the gNB's side saw this twin out of sync.  A list that the gNB's side cleared is requested again.  A
   rejection for its signature changes nothing: a forgery may have caused it, or a copy of the list.  What was rejected
   unread, for another reason, counts as the list that was requested last.
5. Without new records, or while they are stale, no list is requested or renewed, and a block ends by its validity.  Out
   of sync, the block is withdrawn (`withdraw`).
6. While the twin's picture is not that of the network, nothing is requested, renewed or ended: each list that is due is
   reported once (`Held`).  What `withdraw` makes ends a block and leaves all the same.
7. The PRBs of a block that was taken back, because it had no effect or did harm, are not requested for `BAR_NS`.
8. A list that the twin's model of the cell refuses does not leave (`refused`).  What was requested before it still is,
   but PRBs that are not in it any more are let go, and it is tried again after `TRIAL_RETRY_NS`, or at once if it
   changes.
"""

from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from twinlink.control import UNREAD, PrbBlock, PrbBlockResult
from twinlink.signed_payload import Rule as SignatureRule

MS = 1_000_000
SPACING_NS = 15 * MS  # of a record each 10 ms every other one may change the list, whatever its jitter
HOLD_NS = 400 * MS
RETRY_NS = 5_000 * MS
BAR_NS = 5_000 * MS
TRIAL_RETRY_NS = 200 * MS
SYNC_RETRY_NS = 500 * MS  # the acknowledgements of the next observations end it
NEVER = -(2**62)
OUT_OF_SYNC = "the twin is out of sync"


@dataclass(frozen=True, slots=True)
class Change:
    """The set of PRBs with interference has changed; empty ``prbs`` mean that the interference has ended."""

    prbs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """This list was due, and is held back."""

    prbs: tuple[int, ...]


class Controller:
    """Takes the filtered answer of each record, and the results of PRB blocks.

    Args:
        n_prbs: PRBs of a record.
        session: unique among the twins; part of each block's id, because the exporter answers to all twins.  The
            epoch of the link, or its first digits.
        validity_ms: validity of a block in ms.
        protected: PRBs that are never requested.
        enabled: False to observe only.
        first_prb: number of a record's first PRB in the carrier.

    Attributes:
        seen_ns: when the interference that the last list adds was first observed; of a list that adds nothing, or could
            not leave before, when the record was observed that led to it.
    """

    def __init__(
        self,
        n_prbs: int,
        session: str,
        validity_ms: int,
        protected: frozenset[int] = frozenset(),
        enabled: bool = True,
        first_prb: int = 0,
    ) -> None:
        self._prefix = f"prb-block-{session}-"
        self._unread = f"{UNREAD}{session}"
        self._validity_ms = validity_ms
        self._first_prb = first_prb
        self._protected = protected
        self._enabled = enabled
        self._detected_ns = np.full(n_prbs, NEVER, np.int64)
        self._first_ns = np.zeros(n_prbs, np.int64)  # when the interference that lasts was first observed
        self._barred_ns = np.full(n_prbs, NEVER, np.int64)  # until when a PRB is not requested
        self.seen_ns = 0
        self._observed_ns = self._hindered_ns = NEVER  # the newest record, and the newest at which no list could leave
        self._present: tuple[int, ...] = ()
        self._requested: PrbBlock | None = None
        self._requested_ns = NEVER
        self._changed_ns = NEVER  # the observation of the record with which the list changed last
        self._held: tuple[int, ...] | None = None  # the last list that was held back
        self._retry_ns: int | None = None  # time between rejection and repetition; None: not rejected
        self._count = 0
        self._left: tuple[int, ...] = ()  # what was sent of the list that was requested last
        # What `refused` goes back to.
        self._before: tuple[PrbBlock | None, int, int | None, tuple[int, ...]] = None, NEVER, None, ()
        self._refused: tuple[tuple[int, ...], int] = (), NEVER  # the last list that was, and until when it is not due

    def observe(
        self,
        interfered: NDArray[np.bool_],
        observed_ns: int,
        wall_ns: int,
        monotonic_ns: int,
        in_sync: bool = True,
        holds: bool = False,
        waits: bool = False,
    ) -> list[Change | PrbBlock | Held]:
        """Take in a record's filtered answer; returns the changes to report and the blocks to send.

        Args:
            interfered: bool, shape ``(n_prbs,)``.
            observed_ns: when the record was observed.
            wall_ns: Unix time, for the gNB's side.
            monotonic_ns: monotonic time, for intervals.
            in_sync: whether the record is recent enough for a decision; otherwise changes are only reported.
            holds: whether decisions are held back.
            waits: whether a newer record is at hand, with which it is decided instead.
        """
        self._first_ns[interfered & (self._detected_ns <= monotonic_ns - HOLD_NS)] = observed_ns
        self._detected_ns[interfered] = monotonic_ns
        self._observed_ns = observed_ns
        if holds or not in_sync:
            self._hindered_ns = observed_ns
        if waits:
            return []
        todo: list[Change | PrbBlock | Held] = []
        wanted = self._detected_ns > monotonic_ns - HOLD_NS
        due = abs(observed_ns - self._changed_ns) >= SPACING_NS  # also if time was set back
        present = tuple(int(prb) + self._first_prb for prb in np.flatnonzero(wanted))
        if present != self._present and due:
            self._present = present
            self._changed_ns = observed_ns
            todo.append(Change(present))
        if self._enabled and in_sync:
            prbs = tuple(prb for prb in self._present if self._may_request(prb, monotonic_ns))
            if holds:
                if self._held != prbs and self._is_due(prbs, monotonic_ns):
                    self._held = prbs
                    todo.append(Held(prbs))
                return todo
            self._held = None
            if self._is_due(prbs, monotonic_ns):
                self._note_seen(prbs, observed_ns)
                todo.append(self._request(prbs, wall_ns, monotonic_ns))
        return todo

    def withdraw(
        self, wall_ns: int, monotonic_ns: int, reason: str = OUT_OF_SYNC, bar: bool = False
    ) -> PrbBlock | None:
        """The empty list to send when the block must not stand; None if no PRB is requested.

        Args:
            wall_ns, monotonic_ns: as of `observe`.
            reason: for the log of the gNB's side.
            bar: whether its PRBs are not to be requested for `BAR_NS`.
        """
        if self._requested is None or not self._requested.prbs:
            return None
        self._hindered_ns = self._observed_ns
        if bar:
            self._barred_ns[np.array(self._requested.prbs) - self._first_prb] = monotonic_ns + BAR_NS
        return self._make_block((), reason, wall_ns, monotonic_ns)

    def forget(self) -> None:
        """No PRB counts as interfered until it is detected again."""
        self._detected_ns[:] = NEVER
        self._changed_ns = NEVER

    def result(self, result: PrbBlockResult) -> bool:
        """Take in the result of a block, of this twin or another one; whether it rejects the list requested last."""
        unread = result.id.startswith(self._unread)
        if self._requested is None or not (result.id == self._requested.id or unread):
            return False
        if result.status == "rejected" and result.reason.partition(":")[0] not in get_args(SignatureRule):
            self._retry_ns = SYNC_RETRY_NS if result.reason.startswith("sync:") else RETRY_NS
            self._hindered_ns = self._observed_ns
            return True
        if result.status == "cleared" and self._requested.prbs:
            self._hindered_ns = self._observed_ns
            self._requested = None  # not withdrawn by this twin: request it again if it is still needed
        return False

    def parted(self, prbs: tuple[int, ...]) -> None:
        """Of the list that `observe` returned last, these PRBs are sent."""
        self._left = prbs

    def refused(self, wall_ns: int, monotonic_ns: int) -> PrbBlock | None:
        """The list that `observe` returned last is not sent; returns what is, as less is to stand, or None."""
        assert self._requested is not None
        wanted = self._requested.prbs
        self._hindered_ns = self._observed_ns
        self._refused = wanted, monotonic_ns + TRIAL_RETRY_NS
        self._requested, self._requested_ns, self._retry_ns, self._left = self._before
        since_ns, stands = self._requested_ns, self._left if self._requested else ()
        kept = tuple(prb for prb in stands if prb in wanted)
        left_ms = self._validity_ms - (monotonic_ns - since_ns) // MS
        if kept == stands or left_ms <= 0 or self._retry_ns is not None:
            return None
        reason = "interference ended on the others" if kept else "interference ended"
        self._requested = replace(self._make_block(kept, reason, wall_ns, monotonic_ns), validity_ms=left_ms)
        self._requested_ns = since_ns
        return self._requested

    def is_own(self, result: PrbBlockResult) -> bool:
        """Whether the result is of a block of this twin."""
        return result.id.startswith((self._prefix, self._unread))

    def shows_another_twin(self, result: PrbBlockResult) -> bool:
        """Whether the result shows that another twin holds the block."""
        if self.is_own(result):
            return result.status == "rejected" and result.reason.startswith("holder:")
        return result.status == "installed"

    def _may_request(self, prb: int, monotonic_ns: int) -> bool:
        return prb not in self._protected and bool(self._barred_ns[prb - self._first_prb] <= monotonic_ns)

    def _note_seen(self, prbs: tuple[int, ...], observed_ns: int) -> None:
        if prbs != self._requested_prbs:
            added = set(prbs).difference(self._requested_prbs)
            times = (int(self._first_ns[prb - self._first_prb]) for prb in added)
            self.seen_ns = min((time_ns for time_ns in times if time_ns > self._hindered_ns), default=observed_ns)

    def _is_due(self, prbs: tuple[int, ...], monotonic_ns: int) -> bool:
        if prbs == self._refused[0] and monotonic_ns < self._refused[1]:
            return False
        if prbs != self._requested_prbs:
            return True
        return bool(prbs) and monotonic_ns - self._requested_ns >= self._repeat_after_ns()

    @property
    def _requested_prbs(self) -> tuple[int, ...]:
        return self._requested.prbs if self._requested else ()

    def _request(self, prbs: tuple[int, ...], wall_ns: int, monotonic_ns: int) -> PrbBlock:
        reason = "interference" if prbs else "interference ended"
        return self._make_block(prbs, reason, wall_ns, monotonic_ns, renew=prbs == self._requested_prbs)

    def _make_block(
        self, prbs: tuple[int, ...], reason: str, wall_ns: int, monotonic_ns: int, renew: bool = False
    ) -> PrbBlock:
        self._count += not renew
        self._before = self._requested, self._requested_ns, self._retry_ns, self._left
        self._left = prbs
        self._requested = PrbBlock(f"{self._prefix}{self._count}", prbs, wall_ns, self._validity_ms, reason)
        self._requested_ns = monotonic_ns
        self._retry_ns = None
        return self._requested

    def _repeat_after_ns(self) -> int:
        return self._validity_ms * MS // 2 if self._retry_ns is None else self._retry_ns
