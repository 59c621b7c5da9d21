"""Tones told by their place: a tone is on the same subcarrier in every record, whoever transmits on top.

`power.PrbFeatures.line` compares each subcarrier with the nearest ones, which have the same UE and the same channel.  A
hidden Markov model of two states, tone and none, sums it up over the records.  Its log-odds are added up and kept
between those of "surely not" and "surely", which is as good as exact where they are far apart.
"""

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

from .evidence import Array
from .power import SUBCARRIERS_PER_PRB

COMES, GOES = 1 / 8000, 1 / 50  # chances per record; a PRB has twelve subcarriers
OFF, ON = math.log(COMES), -math.log(GOES)
PRIOR = math.log(COMES / GOES)
PROMPT = 3.5  # log-odds
NEAR, FEW = 8, 2  # PRBs to either side that count, and how many of these and the PRB itself may have a tone


class Lines:
    """Feed it what records say of each subcarrier, in order.

    Args:
        n_prbs: PRBs in a record.
    """

    def __init__(self, n_prbs: int) -> None:
        self._odds = np.full((n_prbs, SUBCARRIERS_PER_PRB), PRIOR, np.float32)
        self._waiting: deque[tuple[Array, Array]] = deque()  # log-odds from the past, and what the record says

    def add(self, line: Array) -> NDArray[np.bool_]:
        """Take in a record, shape ``(n_prbs, 12)``; returns on which PRBs a tone is, from the past alone."""
        self._waiting.append((self._odds, line))
        now = self._odds + line
        self._odds = np.clip(now, OFF, ON)
        return np.asarray(few((now > PROMPT).any(axis=1)[None])[0])

    def look_back(self) -> NDArray[np.bool_]:
        """On which PRBs a tone is, for all records since `let_go`."""
        found = np.empty((len(self._waiting), len(self._odds)), bool)
        later = np.full_like(self._odds, PRIOR)
        for k in range(len(found) - 1, -1, -1):
            before, line = self._waiting[k]
            later += line
            found[k] = (later + before).max(axis=1) > PRIOR  # which is contained in both
            np.clip(later, OFF, ON, out=later)
        return few(found)

    def let_go(self, count: int) -> None:
        """The first ``count`` records are settled."""
        for _ in range(count):
            self._waiting.popleft()


def few(found: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Leave out what stands in a crowd, shape ``(records, n_prbs)``: that is a channel, or a comb of a UE's."""
    count = np.cumsum(np.pad(found, ((0, 0), (NEAR + 1, NEAR))), axis=1)
    return np.asarray(found & (count[:, 2 * NEAR + 1 :] - count[:, : -2 * NEAR - 1] <= FEW))
