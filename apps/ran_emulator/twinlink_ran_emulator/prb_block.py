"""The spectrum of blocked PRBs: everything but the UEs.

A recording holds the sum of UEs, interferer and noise, so the UE's part cannot be subtracted.  A cell (one PRB of one
record) that is blocked and carries a UE is replaced, by the first rule that applies:

1. the same PRB from one of the nearest records in which the same interferer annotation (or none) covers it and no UE;
2. the nearest such cell of other PRBs: the same interferer annotation (or none), no UE;
3. if an interferer never occurs without a UE: Gaussian noise of the interferer's estimated power, which is the mean
   power of those cells minus that of the same UE annotation without the interferer;
4. Gaussian noise at the noise floor.

The nearest `POOL` cells are used in turn, so that the noise of a long block varies.  The same recording and block
always give the same samples.
"""

import numpy as np
from numpy.typing import NDArray

from twinlink.spectrum import SUBCARRIERS_PER_PRB

from .recording import Recording
from .truth import mark

POOL = 16
CHUNK = 65536  # cells per step, which bounds the memory
_BANK = 1021  # cells of precomputed noise; a prime, to avoid a period in records and PRBs


class PrbBlocker:
    """Removes the UEs from blocked PRBs.

    Attributes:
        floor: mean power of a subcarrier without UE and interferer, in LSB squared.
        synthetic: number of cells of the recording that rules 3 and 4 would fill with synthetic noise.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        grid = recording.grid
        self._shape = (grid.n_records, grid.n_prbs)
        self._cells = recording.samples.reshape(-1, SUBCARRIERS_PER_PRB, 2)
        self._power = np.concatenate(
            [
                2 * np.square(self._cells[first : first + CHUNK], dtype=np.float64).mean(axis=(1, 2))
                for first in range(0, len(self._cells), CHUNK)
            ]
        )
        clean = np.flatnonzero((recording.interferer == 0) & ~recording.ue)
        self.floor = float(self._power[clean].mean() if len(clean) else np.percentile(self._power, 5))
        self._donor = np.full(self._shape, -1, np.int64)
        self._noise_power = np.full(self._shape, self.floor)
        for interferer in range(int(recording.interferer.max(initial=0)) + 1):
            self._find_donors(interferer)
        self._estimate_interferers()
        self.synthetic = int(np.count_nonzero(recording.ue & (self._donor < 0)))
        self._bank = np.random.Generator(np.random.PCG64(0)).standard_normal((_BANK, SUBCARRIERS_PER_PRB, 2))

    def apply(self, record: int, blocked: NDArray[np.bool_]) -> NDArray[np.int16]:
        """Samples of a record, shape ``(n_prbs * 12, 2)``, under a block given as bool of shape ``(n_prbs,)``."""
        samples: NDArray[np.int16] = self._recording.samples[record]
        prbs = np.flatnonzero(blocked & self._recording.ue[record])
        if not len(prbs):
            return samples
        cells = samples.reshape(-1, SUBCARRIERS_PER_PRB, 2).copy()
        donors = self._donor[record, prbs]
        cells[prbs] = self._cells[donors]
        bare = prbs[donors < 0]
        if len(bare):
            noise = self._bank[(record * self._shape[1] + bare) % _BANK]
            scale = np.sqrt(self._noise_power[record, bare] / 2)[:, None, None]
            cells[bare] = np.clip(np.rint(noise * scale), -32768, 32767)
        return cells.reshape(samples.shape)

    def _find_donors(self, interferer: int) -> None:
        """Rules 1 and 2, for the cells under one interferer annotation (0: none)."""
        under = self._recording.interferer == interferer
        ue = self._recording.ue
        any_prb = np.flatnonzero(under & ~ue)
        for prb in np.flatnonzero((under & ue).any(axis=0)):
            needing = np.flatnonzero(under[:, prb] & ue[:, prb])
            same_prb = np.flatnonzero(under[:, prb] & ~ue[:, prb]) * self._shape[1] + prb
            pool = same_prb if len(same_prb) else any_prb
            if len(pool):
                self._donor[needing, prb] = _near(pool, needing * self._shape[1] + prb, needing)

    def _estimate_interferers(self) -> None:
        """Rule 3; without an estimate the noise floor remains (rule 4)."""
        recording = self._recording
        bare = recording.ue & (self._donor < 0) & (recording.interferer > 0)
        if not bare.any():
            return
        ues = mark(recording.areas, "ue", *self._shape)
        power = self._power.reshape(self._shape)
        for ue in np.unique(ues[bare]):
            alone = (ues == ue) & (recording.interferer == 0)
            if not alone.any():
                continue
            for interferer in np.unique(recording.interferer[bare & (ues == ue)]):
                both = bare & (ues == ue) & (recording.interferer == interferer)
                self._noise_power[both] = max(power[both].mean() - power[alone].mean(), 0.0) + self.floor


def _near(pool: NDArray[np.int64], targets: NDArray[np.int64], turns: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each target one of the `POOL` nearest members of the sorted pool, in turn."""
    size = min(POOL, len(pool))
    first = np.clip(np.searchsorted(pool, targets) - size // 2, 0, len(pool) - size)
    chosen: NDArray[np.int64] = pool[first + turns % size]
    return chosen
