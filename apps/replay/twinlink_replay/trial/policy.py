"""A policy: which PRBs are kept free of UEs, and from when until when."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .futures import Futures
from .heard import STEP_MS, Rows

NEVER = -(2**15)


@dataclass(frozen=True, slots=True)
class Span:
    """A block of PRBs.

    Attributes:
        start_ms, end_ms: from when until when, in ms from now.
        prbs: its PRBs.
        release_ms: a PRB is let go this long after the interferer has left it, or now if there is none, and is blocked
            again if one comes back, as the twin's `Controller` does it; None: it is blocked until the end.
    """

    start_ms: int
    end_ms: int
    prbs: tuple[int, ...]
    release_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """Blocks of PRBs under a name; without any, UEs may use all PRBs."""

    name: str
    spans: tuple[Span, ...] = ()

    @property
    def changes_ms(self) -> list[int]:
        """The times at which the list of PRBs changes, ascending."""
        times = sorted({time for span in self.spans if span.prbs for time in (span.start_ms, span.end_ms)})
        lists = [self.at(time) for time in times]
        return [time for time, before, now in zip(times, [frozenset(), *lists], lists, strict=False) if now != before]

    def at(self, time_ms: int) -> frozenset[int]:
        """The PRBs that are to be blocked at that time, those that are let go early included."""
        return frozenset(prb for span in self.spans if span.start_ms <= time_ms < span.end_ms for prb in span.prbs)


NOTHING = Policy("nothing")


def blocked(policy: Policy, futures: Futures) -> Rows:
    """Which PRBs are blocked; bool, of the shape of the futures, which have all its PRBs."""
    rows = np.zeros(futures.ue.shape, np.bool_)
    for span in policy.spans:
        first, end = span.start_ms // STEP_MS, -(-span.end_ms // STEP_MS)
        prbs = np.array(span.prbs, np.int64)
        if futures.prbs is not None:
            prbs = np.searchsorted(futures.prbs, prbs)
        if span.release_ms is None:
            rows[:, first:end, prbs] = True
        elif len(prbs):
            near = _near(futures.interferer[:, :, prbs], span.release_ms // STEP_MS)
            rows[:, first:end, prbs] |= near[:, first:end]
    return rows


def _near(interferer: Rows, release: int) -> Rows:
    """Where an interferer was present within the last steps; one is taken to have been just before the first."""
    steps = np.arange(interferer.shape[1], dtype=np.int16)[None, :, None]
    last: NDArray[np.int16] = np.maximum.accumulate(np.where(interferer, steps, np.int16(-1)), axis=1)
    return np.asarray(steps - last <= release)
