"""Per-subcarrier two-state hidden Markov model of tones: a tone stays on one subcarrier, also below a UE.

`features.PrbFeatures.tone_llr` compares each subcarrier with its neighbours, which have the same UE and the same
channel.  The model (tone, no tone) accumulates that ratio over the records.  It adds log-odds and clips them to
``[OFF, ON]``, which approximates the exact recursion well because the two limits are far apart.
"""

import math
from collections import deque
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from .features import SUBCARRIERS_PER_PRB
from .likelihoods import Array

START, END = 1 / 8000, 1 / 50  # transition probabilities per record; a PRB has twelve subcarriers
OFF, ON = math.log(START), -math.log(END)
PRIOR = math.log(START / END)
FILTERED_AT = 3.5  # log-odds
CLEAR = 2.5  # nats; a record with more shows the tone's level
WEAKEST = 0.1  # quantile of the amplitude over these records; a UE is on top in some of them
OPPOSED, STEADY = 2.0, 0.8  # largest amplitude of a UE relative to its mean; smallest of a tone relative to its level
GONE = -4.0  # nats against a tone in a record with less amplitude
NEAR, FEW = 8, 2  # PRBs on either side, and the most of these and the PRB itself that may have a tone


class ToneHmm:
    """Takes the tone LLRs of records in order.

    Args:
        n_prbs: PRBs in a record.
        settle: whether to buffer records for `smooth`.
    """

    def __init__(self, n_prbs: int, settle: bool = True) -> None:
        self._odds = np.full((n_prbs, SUBCARRIERS_PER_PRB), PRIOR, np.float32)
        self._settle = settle
        self._buffer: deque[tuple[Array, Array, Array]] = deque()  # log-odds before the record, LLR, cells

    def add(self, tone_llr: Array, cells: Array) -> NDArray[np.bool_]:
        """Take in a record; returns the filtered answer.

        Args:
            tone_llr, cells: of `features.PrbFeatures`, shape ``(n_prbs, 12)``.

        Returns:
            Which PRBs carry a tone, bool, shape ``(n_prbs,)``.
        """
        if self._settle:
            self._buffer.append((self._odds, tone_llr, cells))
        now = self._odds + tone_llr
        self._odds = np.clip(now, OFF, ON)
        return np.asarray(drop_crowded((now > FILTERED_AT).any(axis=1)[None])[0])

    def smooth(self, count: int) -> NDArray[np.bool_]:
        """Which PRBs carry a tone in the first ``count`` buffered records, bool, shape ``(count, n_prbs)``."""
        buffered = list(islice(self._buffer, count))
        before = np.array([each[0] for each in buffered])
        llr = np.array([each[1] for each in buffered])
        found = _found(before, llr)
        for prb in np.flatnonzero(found.any(axis=(0, 2))):
            place = int(found[:, prb].sum(axis=0).argmax())
            cells = np.array([each[2][prb] for each in buffered])
            clear = found[:, prb, place] & (llr[:, prb, place] > CLEAR)
            if clear.any():
                llr[:, prb] += GONE * _too_weak(cells, place, clear)[:, None]
                before[:, prb] = _forward(before[0, prb], llr[:, prb])
                found[:, prb] = _found(before[:, prb], llr[:, prb])
        return drop_crowded(found.any(axis=2))

    def drop_records(self, count: int) -> None:
        """Drop the first ``count`` buffered records: their smoothed answers are final."""
        for _ in range(count):
            self._buffer.popleft()


def _too_weak(cells: Array, place: int, clear: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Records in which a subcarrier is weaker than the tone would be with a UE in antiphase.

    Args:
        cells: powers of a PRB's subcarriers in LSB^2, shape ``(records, 12)``.
        place: index of the subcarrier.
        clear: records that show the tone, bool, shape ``(records,)``.
    """
    own = np.sqrt(cells[:, place])
    others = np.sqrt((cells.sum(axis=1) - cells[:, place]) / (SUBCARRIERS_PER_PRB - 1))
    tone = np.quantile(own[clear], WEAKEST)
    return np.asarray(own + OPPOSED * others < STEADY * tone)


def _forward(odds: Array, llr: Array) -> Array:
    """Log-odds before each record, given the log-odds before the first one and the LLR of each."""
    before = np.empty_like(llr)
    for k, each in enumerate(llr):
        before[k] = odds
        odds = np.clip(odds + each, OFF, ON)
    return before


def _found(before: Array, llr: Array) -> NDArray[np.bool_]:
    """Where a tone is, given the log-odds before each record and the LLR of each."""
    found = np.empty(llr.shape, bool)
    later = np.full_like(before[0], PRIOR)
    for k in range(len(found) - 1, -1, -1):
        later += llr[k]
        found[k] = later + before[k] > PRIOR  # both sums contain the prior
        np.clip(later, OFF, ON, out=later)
    return found


def drop_crowded(found: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Remove tones with many other tones nearby, shape ``(records, n_prbs)``: a UE's channel or comb causes these."""
    if not found.any():
        return found
    count = np.cumsum(np.pad(found, ((0, 0), (NEAR + 1, NEAR))), axis=1)
    return np.asarray(found & (count[:, 2 * NEAR + 1 :] - count[:, : -2 * NEAR - 1] <= FEW))
