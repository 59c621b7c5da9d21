"""Online estimate of the HMM's transition probabilities, from transitions that are beyond doubt.

The rates of UEs are pooled over all PRBs, because one scheduler fills them.  The rates of interferers are estimated
for each PRB, once an interferer there is intermittent, as packets, pulses and sweeps are: it came often, and stayed
briefly.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .likelihoods import Array

# Probabilities per record of starting and of ending: prior means, which are also the minima.  `COUNTS_FOR` is the
# weight of the prior in records, off and on.  Records are 10 ms apart in the recordings used for development.
UE = (1 / 40, 1 / 30)
INTERFERER = (1 / 800, 1 / 200)
COUNTS_FOR = (100.0, 10.0)
MOST = (0.3, 0.9)
KEPT = 1 - 1 / 2000  # forgetting factor per record
ON, OFF = 0.9, 0.1  # posterior above which a transmission has started, and below which it has ended
OFTEN = 5  # an intermittent interferer started more often than this, and ...
SHORT = 10.0  # ... lasted fewer records in the mean; longer ones may be UEs


class TransitionRates:
    """Takes the HMM's posteriors of records in order.

    Args:
        n_prbs: PRBs in a record.
    """

    def __init__(self, n_prbs: int) -> None:
        self._ue, self._interferer = _Count(UE, n_prbs), _Count(INTERFERER, n_prbs)

    def learn(self, ue: Array, interferer: Array) -> None:
        """Take in the posterior probabilities of a UE and of an interferer in the next record, shape ``(n_prbs,)``."""
        self._ue.learn(ue)
        self._interferer.learn(interferer)

    def transition(self) -> Array:
        """Transition probabilities per record, shape ``(from, to, n_prbs)``, of the four states of `occupancy_hmm`."""
        interferer = self._interferer
        intermittent = is_intermittent(interferer.changes[0], interferer.changes[1], interferer.records[1])
        own = np.where(intermittent, interferer.rates(), np.array([INTERFERER]).T)
        shared = self._ue.mean_rates()
        both = _two_state(own)[:, None, :, None] * _two_state(shared)[None, :, None, :]
        return np.asarray(both.reshape(4, 4, -1), np.float32)


def is_intermittent(starts: NDArray[Any], ends: NDArray[Any], on: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether a transmission came often and stayed briefly: counts of starts, ends and records on, of one shape."""
    return np.asarray((starts > OFTEN) & (ends * SHORT > on))


class _Count:
    """Counts of one kind: ``records`` off and on, and ``changes`` to on and to off; both ``(2, n_prbs)``."""

    def __init__(self, prior: tuple[float, float], n_prbs: int) -> None:
        self._prior = np.array([prior]).T
        self.records, self.changes = np.zeros((2, 2, n_prbs))
        self._on = np.zeros(n_prbs, bool)

    def learn(self, posterior: Array) -> None:
        on = posterior > np.where(self._on, OFF, ON)
        self.records = KEPT * self.records + (~self._on, self._on)
        self.changes = KEPT * self.changes + (on & ~self._on, self._on & ~on)
        self._on = on

    def rates(self) -> NDArray[np.float64]:
        """Rates of each PRB, shape ``(2, n_prbs)``."""
        return self._of(self.changes, self.records)

    def mean_rates(self) -> NDArray[np.float64]:
        """Rates pooled over all PRBs, shape ``(2, 1)``."""
        return self._of(*(each.mean(axis=1, keepdims=True) for each in (self.changes, self.records)))

    def _of(self, changes: NDArray[np.float64], records: NDArray[np.float64]) -> NDArray[np.float64]:
        counts_for = np.array([COUNTS_FOR]).T
        rates = (changes + counts_for * self._prior) / (records + counts_for)
        return np.asarray(np.clip(rates, self._prior, np.array([MOST]).T))


def _two_state(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Two-state transition probabilities, from off or on (first axis) to off or on (second axis)."""
    starts, ends = rates
    return np.array([[1 - starts, starts], [ends, 1 - ends]])
