"""How often UEs and interferers come and go, as chances per record, learned from when that is beyond doubt.

UEs' are those of all PRBs together, since one scheduler fills them.  An interferer's are each PRB's own, once it has
come often for a few records: as packets, pulses and sweeps do.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .likelihoods import Array

# Of coming, and of going; never less, and for how many records, of being away and of being there, that counts.  Records
# come 10 ms apart in the recordings that we know.
UE = (1 / 40, 1 / 30)
INTERFERER = (1 / 800, 1 / 200)
COUNTS_FOR = (100.0, 10.0)
MOST = (0.3, 0.9)
KEPT = 1 - 1 / 2000  # of what was learned, with each record
ON, OFF = 0.9, 0.1  # posterior beyond which somebody has come, or gone
OFTEN = 5  # times that an interferer came, and ...
SHORT = 10.0  # ... records that it stayed in the mean; what one learns from others may be a UE's


class TransitionRates:
    """Feed it what is known of records in order.

    Args:
        n_prbs: PRBs in a record.
    """

    def __init__(self, n_prbs: int) -> None:
        self._ue, self._interferer = _Count(UE, n_prbs), _Count(INTERFERER, n_prbs)

    def learn(self, ue: Array, interferer: Array) -> None:
        """Take in the chances that a UE, and that an interferer, is on each PRB in the next record."""
        self._ue.learn(ue)
        self._interferer.learn(interferer)

    def transition(self) -> Array:
        """Chances of going from one state to another within one record, shape ``(4, 4, n_prbs)``.

        The states are those of `occupancy_hmm`: neither, a UE, an interferer, both.
        """
        interferer = self._interferer
        blinking = blinks(interferer.changes[0], interferer.changes[1], interferer.records[1])
        own = np.where(blinking, interferer.rates(), np.array([INTERFERER]).T)
        shared = self._ue.mean_rates()
        both = _steps(own)[:, None, :, None] * _steps(shared)[None, :, None, :]
        return np.asarray(both.reshape(4, 4, -1), np.float32)


def blinks(comings: NDArray[Any], goings: NDArray[Any], there: NDArray[Any]) -> NDArray[np.bool_]:
    """What has come often, and for a few records."""
    return np.asarray((comings > OFTEN) & (goings * SHORT > there))


class _Count:
    """Of being away and being there: ``records``; and of coming and going: ``changes``; both ``(2, n_prbs)``."""

    def __init__(self, usual: tuple[float, float], n_prbs: int) -> None:
        self._usual = np.array([usual]).T
        self.records, self.changes = np.zeros((2, 2, n_prbs))
        self._on = np.zeros(n_prbs, bool)

    def learn(self, chance: Array) -> None:
        on = chance > np.where(self._on, OFF, ON)
        self.records = KEPT * self.records + (~self._on, self._on)
        self.changes = KEPT * self.changes + (on & ~self._on, self._on & ~on)
        self._on = on

    def rates(self) -> NDArray[np.float64]:
        """Of each PRB."""
        return self._of(self.changes, self.records)

    def mean_rates(self) -> NDArray[np.float64]:
        """Of all PRBs together."""
        return self._of(*(each.mean(axis=1, keepdims=True) for each in (self.changes, self.records)))

    def _of(self, changes: NDArray[np.float64], records: NDArray[np.float64]) -> NDArray[np.float64]:
        counts_for = np.array([COUNTS_FOR]).T
        rates = (changes + counts_for * self._usual) / (records + counts_for)
        return np.asarray(np.clip(rates, self._usual, np.array([MOST]).T))


def _steps(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Chances of being there (second axis) after being away, or there (first axis)."""
    comes, goes = rates
    return np.array([[1 - comes, comes], [goes, 1 - goes]])
