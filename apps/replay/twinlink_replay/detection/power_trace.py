"""Power of each subcarrier over time: exponential average and peak hold."""

import numpy as np
from numpy.typing import NDArray


class PowerTrace:
    """Exponential average and peak hold of the power of each subcarrier.

    Args:
        n_subcarriers: width.
        records: time constant of the average, in records.

    Attributes:
        average: LSB^2, shape ``(n_subcarriers,)``; zeros before the first record.
        peak: the highest power since the start or `reset_peak`, LSB^2, shape ``(n_subcarriers,)``.
    """

    def __init__(self, n_subcarriers: int, records: float = 50.0) -> None:
        self.average = np.zeros(n_subcarriers, np.float32)
        self.peak = np.zeros(n_subcarriers, np.float32)
        self._records = records
        self._count = 0

    def add(self, power: NDArray[np.float32]) -> None:
        """Take in powers in LSB^2, shape ``(records, n_subcarriers)``."""
        for record in power:
            self._count += 1
            # The first records have equal weights, so that the average is unbiased from the start.
            weight = max(1 / self._count, 1 / self._records)
            self.average += np.float32(weight) * (record - self.average)
            np.maximum(self.peak, record, out=self.peak)

    def reset_peak(self) -> None:
        """Reset the peak hold."""
        self.peak[:] = 0
