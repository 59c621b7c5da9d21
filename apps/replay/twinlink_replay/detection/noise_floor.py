"""Noise floor estimation by the lowest mode: the mean of the lowest cluster of PRB powers.

This is not CFAR: the threshold is not set from a cell's neighbours, but from the pooled powers of all PRBs.
"""

import numpy as np
from numpy.typing import NDArray

from .features import QUANTISATION

WINDOW = 128  # records pooled; some cells within it are free
CLUSTER = 1.8  # cells up to this multiple of the floor belong to it (12 averaged subcarriers: 3 sigma)
RISE_PER_RECORD = 10 ** (0.02 / 10)  # a noise floor rises slowly; a fast rise is a signal


class NoiseFloor:
    """Tracks the noise floor as the mean of the lowest cluster of PRB powers, pooled over PRBs and records.

    The power of a free PRB scatters by only 1.25 dB (the mean of 12 exponentially distributed subcarriers), so free
    PRBs form a narrow cluster.  UEs and interferers lie above this cluster and do not move it, as long as about one
    cell in a hundred of the window is free.  The level follows downwards at once, and upwards by at most 0.02 dB a
    record.  All-zero PRBs are ignored: some RANs blank the blocked PRBs.

    Args:
        n_prbs: PRBs in a record.

    Attributes:
        level: LSB^2 per subcarrier; None before the first record.
    """

    def __init__(self, n_prbs: int) -> None:
        self.level: float | None = None
        self._ring = np.zeros((WINDOW, n_prbs), np.float32)
        self._seen = 0
        self._due = 1
        self._updated = 0

    def add(self, power: NDArray[np.float32]) -> float:
        """Take in PRB powers in LSB^2, shape ``(records, n_prbs)``; returns the new level in LSB^2 per subcarrier."""
        for start in range(0, len(power), 16):
            part = power[start : start + 16]
            self._ring[np.arange(self._seen, self._seen + len(part)) % WINDOW] = part
            self._seen += len(part)
            if self._seen >= self._due:
                self._update()
                self._due = self._seen + min(16, self._seen)
        return self.level or QUANTISATION

    def _update(self) -> None:
        cells = self._ring[: min(self._seen, WINDOW)].ravel()
        cells = cells[cells > 0]
        if len(cells) == 0:
            return
        found = max(lowest_cluster(cells), QUANTISATION)
        if self.level is not None:
            found = min(found, self.level * RISE_PER_RECORD ** (self._seen - self._updated))
        self._updated = self._seen
        self.level = found


def lowest_cluster(cells: NDArray[np.float32]) -> float:
    """Mean of the lowest cluster of gamma-distributed powers (shape parameter 12); ``cells`` of shape ``(n,)``."""
    rank = max(2, len(cells) // 200) if len(cells) > 2 else 0
    level = float(np.partition(cells, rank)[rank])
    for _ in range(12):
        mean = float(cells[cells <= CLUSTER * level].mean())
        if abs(mean - level) < 0.005 * level:
            break
        level = mean
    return level
