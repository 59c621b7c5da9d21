"""Tones told by their place: a tone is on the same subcarrier in every record, whoever transmits on top.

`power.PrbFeatures.line` compares each subcarrier with the nearest ones, which have the same UE and the same channel.  A
hidden Markov model of two states, tone and none, sums it up over the records.  Its log-odds are added up and kept
between those of "surely not" and "surely", which is as good as exact where they are far apart.
"""

import math
from collections import deque
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from twinlink.spectrum import SUBCARRIERS_PER_PRB

from .likelihoods import Array

COMES, GOES = 1 / 8000, 1 / 50  # chances per record; a PRB has twelve subcarriers
OFF, ON = math.log(COMES), -math.log(GOES)
PRIOR = math.log(COMES / GOES)
PROMPT = 3.5  # log-odds
CLEAR = 2.5  # nats that a record says for a tone that shows its level
WEAKEST = 0.1  # of these records show less; a UE is on top in others
OPPOSED, STEADY = 2.0, 0.8  # amplitude of a UE against its mean, and of a tone against what was seen, at the least
GONE = -4.0  # nats against a tone that shows less than that
NEAR, FEW = 8, 2  # PRBs to either side that count, and how many of these and the PRB itself may have a tone


class ToneHmm:
    """Feed it what records say of each subcarrier, in order.

    Args:
        n_prbs: PRBs in a record.
    """

    def __init__(self, n_prbs: int) -> None:
        self._odds = np.full((n_prbs, SUBCARRIERS_PER_PRB), PRIOR, np.float32)
        self._waiting: deque[tuple[Array, Array, Array]] = deque()  # log-odds from the past, line, cells

    def add(self, line: Array, cells: Array) -> NDArray[np.bool_]:
        """Take in a record, see `power.PrbFeatures`; returns on which PRBs a tone is, from the past alone."""
        self._waiting.append((self._odds, line, cells))
        now = self._odds + line
        self._odds = np.clip(now, OFF, ON)
        return np.asarray(few((now > PROMPT).any(axis=1)[None])[0])

    def smooth(self, count: int) -> NDArray[np.bool_]:
        """On which PRBs a tone is, for the first ``count`` records since `drop_records`."""
        waiting = list(islice(self._waiting, count))
        before = np.array([each[0] for each in waiting])
        line = np.array([each[1] for each in waiting])
        found = _found(before, line)
        for prb in np.flatnonzero(found.any(axis=(0, 2))):
            place = int(found[:, prb].sum(axis=0).argmax())
            cells = np.array([each[2][prb] for each in waiting])
            clear = found[:, prb, place] & (line[:, prb, place] > CLEAR)
            if clear.any():
                line[:, prb] += GONE * _too_weak(cells, place, clear)[:, None]
                before[:, prb] = _forward(before[0, prb], line[:, prb])
                found[:, prb] = _found(before[:, prb], line[:, prb])
        return few(found.any(axis=2))

    def drop_records(self, count: int) -> None:
        """The first ``count`` records are settled."""
        for _ in range(count):
            self._waiting.popleft()


def _too_weak(cells: Array, place: int, clear: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Records in which a subcarrier has less than a tone has there, though a UE be opposed to it.

    Args:
        cells: powers of a PRB's subcarriers, shape ``(records, 12)``.
        place: the subcarrier.
        clear: records that show the tone.
    """
    own = np.sqrt(cells[:, place])
    others = np.sqrt((cells.sum(axis=1) - cells[:, place]) / (SUBCARRIERS_PER_PRB - 1))
    tone = np.quantile(own[clear], WEAKEST)
    return np.asarray(own + OPPOSED * others < STEADY * tone)


def _forward(odds: Array, line: Array) -> Array:
    """Log-odds before each record, given those before the first, and what each record says."""
    before = np.empty_like(line)
    for k, says in enumerate(line):
        before[k] = odds
        odds = np.clip(odds + says, OFF, ON)
    return before


def _found(before: Array, line: Array) -> NDArray[np.bool_]:
    """Where a tone is, given the log-odds before each record, and what each says."""
    found = np.empty(line.shape, bool)
    later = np.full_like(before[0], PRIOR)
    for k in range(len(found) - 1, -1, -1):
        later += line[k]
        found[k] = later + before[k] > PRIOR  # which is contained in both
        np.clip(later, OFF, ON, out=later)
    return found


def few(found: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Leave out what stands in a crowd, shape ``(records, n_prbs)``: that is a channel, or a comb of a UE's."""
    if not found.any():
        return found
    count = np.cumsum(np.pad(found, ((0, 0), (NEAR + 1, NEAR))), axis=1)
    return np.asarray(found & (count[:, 2 * NEAR + 1 :] - count[:, : -2 * NEAR - 1] <= FEW))
