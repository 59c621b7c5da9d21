"""From prompt detections to PRB blocks: what to ask of the gNB, and when.  No I/O; time comes in.

Rules:

1. PRBs are asked for as soon as interference is seen there, at most every `SPACING_NS` (an interferer's edges are
   seen within a few records of each other), and given back `HOLD_NS` after it was last seen.
2. A list replaces the last one.  While it is wanted it is sent again, with the same id, after half its validity.
3. When nothing is wanted any more, an empty list says so.
4. A list that was rejected is not repeated before `RETRY_NS`, unless it changes; one that the gNB's side cleared by
   itself is asked for anew.  If another twin's list stands there now, it counts as rejected as long as that stands: two
   who ask at once again take each other's place at every record.
5. Who sees nothing new decides nothing: without records, or while they are stale, nothing is asked for or renewed, and
   a block ends by its validity.  Out of sync it is taken back (`withdraw`).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlink.control import PrbBlock, PrbBlockResult

MS = 1_000_000
SPACING_NS = 50 * MS
HOLD_NS = 400 * MS
RETRY_NS = 5_000 * MS
NEVER = -(2**62)


@dataclass(frozen=True, slots=True)
class Change:
    """The PRBs on which interference stands have changed; ``prbs`` empty means that it has ended."""

    prbs: tuple[int, ...]


class Controller:
    """Feed it a row of prompt answers for each record, and the results.

    Args:
        n_prbs: PRBs of the carrier.
        session: told from that of any other twin; part of each block's id, since the exporter answers to everybody.
        validity_ms: of a block.
        protected: PRBs never to ask for.
        enabled: False to observe only.
    """

    def __init__(
        self,
        n_prbs: int,
        session: str,
        validity_ms: int,
        protected: frozenset[int] = frozenset(),
        enabled: bool = True,
    ) -> None:
        self._prefix = f"prb-block-{session}-"
        self._validity_ms = validity_ms
        self._allowed = np.array([prb not in protected for prb in range(n_prbs)])
        self._enabled = enabled
        self._seen_ns = np.full(n_prbs, NEVER, np.int64)
        self._present: tuple[int, ...] = ()
        self._asked: PrbBlock | None = None
        self._replaced: PrbBlock | None = None  # what was asked for last, while another twin's list stands instead
        self._asked_ns = NEVER
        self._changed_ns = NEVER
        self._rejected = False
        self._count = 0

    def observe(
        self, interfered: NDArray[np.bool_], wall_ns: int, monotonic_ns: int, in_sync: bool = True
    ) -> list[Change | PrbBlock]:
        """A record's prompt answers; returns what to report and what to send.

        Args:
            interfered: shape ``(n_prbs,)``.
            wall_ns: Unix time, for the gNB's side.
            monotonic_ns: for intervals.
            in_sync: whether the record is recent enough to act on; else changes are only reported.
        """
        self._seen_ns[interfered] = monotonic_ns
        todo: list[Change | PrbBlock] = []
        wanted = self._seen_ns > monotonic_ns - HOLD_NS
        due = monotonic_ns - self._changed_ns >= SPACING_NS
        present = tuple(int(prb) for prb in np.flatnonzero(wanted))
        if present != self._present and due:
            self._present = present
            self._changed_ns = monotonic_ns
            todo.append(Change(present))
        if self._enabled and in_sync:
            prbs = tuple(prb for prb in self._present if self._allowed[prb])
            if block := self._ask(prbs, wall_ns, monotonic_ns):
                todo.append(block)
        return todo

    def withdraw(self, wall_ns: int, monotonic_ns: int) -> PrbBlock | None:
        """What to send when the records are out of sync; None when nothing is asked for."""
        if self._asked is None or not self._asked.prbs:
            return None
        return self._ask_for((), "the twin is out of sync", wall_ns, monotonic_ns)

    def result(self, result: PrbBlockResult) -> None:
        """What became of a block, of anybody's."""
        if not result.prbs:
            self._replaced = None
        if self._asked is None or result.id != self._asked.id:
            return
        if result.status == "rejected":
            self._rejected = True
        elif result.status == "cleared" and self._asked.prbs:
            self._replaced = self._asked if result.prbs else None
            self._asked = None  # not by our wish: ask again if it is still wanted

    def is_of_another(self, result: PrbBlockResult) -> bool:
        """Whether it says that another twin has PRBs blocked."""
        return result.status == "installed" and not result.id.startswith(self._prefix)

    def _ask(self, prbs: tuple[int, ...], wall_ns: int, monotonic_ns: int) -> PrbBlock | None:
        if self._replaced and prbs == self._replaced.prbs and monotonic_ns - self._asked_ns < RETRY_NS:
            return None
        asked = self._asked.prbs if self._asked else ()
        renew = bool(prbs) and prbs == asked and monotonic_ns - self._asked_ns >= self._patience_ns()
        if prbs == asked and not renew:
            return None
        return self._ask_for(prbs, "interference" if prbs else "interference ended", wall_ns, monotonic_ns, renew)

    def _ask_for(
        self, prbs: tuple[int, ...], reason: str, wall_ns: int, monotonic_ns: int, renew: bool = False
    ) -> PrbBlock:
        self._count += not renew
        self._replaced = None
        self._asked = PrbBlock(f"{self._prefix}{self._count}", prbs, wall_ns, self._validity_ms, reason)
        self._asked_ns = monotonic_ns
        self._rejected = False
        return self._asked

    def _patience_ns(self) -> int:
        return RETRY_NS if self._rejected else self._validity_ms * MS // 2
