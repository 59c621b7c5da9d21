"""What UEs are like here: whether some are as rough as noise (transform-precoded ones are)."""

import numpy as np
from numpy.typing import NDArray

from .evidence import Evidence

CLEAR = 1.0  # nats of `Evidence.structure` over a stay that make it rough or smooth
JUMP = 1.4  # log power from one record to the next: somebody else
SHARE = 0.05  # of UEs' stays; beyond it roughness tells no interferer
KEPT = 0.5  # of that share: until it falls below, roughness stays unheeded


class World:
    """Counts rough and smooth transmissions.

    Attributes:
        rough: whether UEs here are as rough as noise.
    """

    def __init__(self, n_prbs: int) -> None:
        self.rough = False
        self._texture = np.zeros(n_prbs, np.float32)
        self._rough, self._smooth = np.zeros(n_prbs), np.zeros(n_prbs)
        self._before = np.zeros(n_prbs, np.float32)

    def add(self, evidence: Evidence, k: int, free: NDArray[np.bool_]) -> None:
        """Take in record ``k`` of ``evidence``, and which PRBs are free."""
        log_power = evidence.log_power[k]
        structure = evidence.structure[k] * (evidence.even[k] > 0)  # a tone says nothing about UEs
        ended = free | (np.abs(log_power - self._before) > JUMP)
        self._before = log_power
        self._rough += ended & (self._texture < -CLEAR)
        self._smooth += ended & (self._texture > CLEAR)
        self._texture = np.where(free, np.float32(0), np.where(ended, structure, self._texture + structure))

    def judge(self) -> bool:
        """Renew `rough`; returns whether it has changed."""
        # An interferer is rough on some PRBs, rough UEs are so everywhere: only the less rough half of them counts.
        half = np.argsort(self._rough / (self._rough + self._smooth + 1))[: (len(self._rough) + 1) // 2]
        rough, smooth = self._rough[half].sum(), self._smooth[half].sum()
        share = SHARE * KEPT if self.rough else SHARE
        before, self.rough = self.rough, bool(rough > share * (rough + smooth) and rough + smooth > len(half))
        return self.rough != before
