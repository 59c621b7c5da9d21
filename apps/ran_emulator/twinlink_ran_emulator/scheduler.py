"""Uplink grants of the UEs.

A grant is a range of contiguous PRBs (resource allocation type 1, 3GPP TS 38.214 clause 6.1.2.2.2) that a UE holds for
many records, as with a full buffer.  UEs pause in between, and part of the carrier always stays free, so that every PRB
occurs without a UE now and then.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_LOAD = 0.7  # of the carrier's PRBs; a full carrier would show no noise floor
BITS_PER_SYMBOL = (2, 4, 6)  # QPSK, 16QAM, 64QAM
MIN_GRANT_RECORDS = 4
MEAN_GRANT_RECORDS = 25.0  # beyond the least
MEAN_SILENCE_RECORDS = 30.0


@dataclass(frozen=True, slots=True)
class Grant:
    """A UE's allocation.

    Attributes:
        ue: index of the UE.
        first_record: first record of the grant.
        end_record: first record after the grant.
        first_prb: lowest PRB.
        n_prbs: PRBs in the allocation.
        bits_per_symbol: modulation order of its symbols: 2 (QPSK), 4 (16QAM) or 6 (64QAM).
    """

    ue: int
    first_record: int
    end_record: int
    first_prb: int
    n_prbs: int
    bits_per_symbol: int


def schedule(
    rng: np.random.Generator,
    n_ues: int,
    n_records: int,
    n_prbs: int,
    *,
    mean_grant_records: float = MEAN_GRANT_RECORDS,
) -> list[Grant]:
    """Grants of ``n_ues`` UEs over ``n_records`` records of ``n_prbs`` PRBs, none overlapping, in order of their start.

    ``mean_grant_records`` is that of an exponential distribution.
    """
    grants: list[Grant] = []
    owner = np.full(n_prbs, -1)
    wakes = rng.exponential(MEAN_SILENCE_RECORDS, n_ues).tolist()
    held_until: list[int | None] = [None] * n_ues  # None: the UE has no grant
    record = 0
    while record < n_records:
        for ue in range(n_ues):
            if held_until[ue] == record:
                held_until[ue] = None
                owner[owner == ue] = -1
                # Every other grant is followed by the next one at once: a busy UE with a moving allocation.
                wakes[ue] = record + (rng.exponential(MEAN_SILENCE_RECORDS) if rng.random() < 0.5 else 0)
            if held_until[ue] is not None or record < wakes[ue]:
                continue
            place = _place(rng, owner)
            if place is None:
                wakes[ue] = record + rng.exponential(5)
                continue
            end = min(record + MIN_GRANT_RECORDS + int(rng.exponential(mean_grant_records)), n_records)
            first, size = place
            owner[first : first + size] = ue
            held_until[ue] = end
            grants.append(Grant(ue, record, end, first, size, int(rng.choice(BITS_PER_SYMBOL))))
        # Until then no UE's grant ends, and none wakes.
        nexts = (math.ceil(wakes[ue]) if end is None else end for ue, end in enumerate(held_until))
        record = max(record + 1, min(nexts, default=n_records))
    return grants


def _place(rng: np.random.Generator, owner: NDArray[np.int64]) -> tuple[int, int] | None:
    """A random range of free PRBs (first, count), or None if the carrier is loaded enough or too fragmented."""
    n_prbs = len(owner)
    room = int(MAX_LOAD * n_prbs) - int((owner >= 0).sum())
    size = min(int(rng.integers(max(2, n_prbs // 26), max(4, n_prbs // 3))), room)
    if size < 2:
        return None
    taken = np.concatenate(([0], np.cumsum(owner >= 0)))
    starts = np.flatnonzero(taken[size:] == taken[:-size])
    return (int(rng.choice(starts)), size) if len(starts) else None
