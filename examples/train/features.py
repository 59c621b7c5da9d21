"""What the model sees of each PRB: of the record at hand, of those before it, and of its neighbours.

Everything is causal, and needs numpy only.  Of a record come the power above the noise floor, the roughness, and the
log-likelihood ratios of a UE and of a tone, as the detector has them (docs/detection.md); of the past their exponential
means over 4, 16 and 64 records; of the neighbours what tells an edge from the middle.
"""

import numpy as np
from numpy.typing import NDArray
from twinlink_replay.detection.features import PrbFeatures, prb_features, subcarrier_power
from twinlink_replay.detection.likelihoods import prb_likelihoods
from twinlink_replay.detection.noise_floor import NoiseFloor

MEANS = 4, 16, 64  # records over which the exponential means go
LINE_MEANS = 8, 32  # the same, of a tone's subcarrier
LOUD = 0.64  # log power above which a PRB is in use: 2.8 dB
_BASE = "power", "rough", "ue", "own", "tone", "peak", "loud", "noisy", "change"
_BESIDE = "power", "ue", "tone"
NAMES = (
    *_BASE,
    *(f"{name}/{mean}" for mean in MEANS for name in _BASE),
    *(f"{side} {name}" for side in ("below", "above") for name in (*_BESIDE, *(f"{name}/16" for name in _BESIDE))),
    *(f"line/{mean}" for mean in LINE_MEANS),
    "load",
)
N_FEATURES = len(NAMES)

Array = NDArray[np.float32]


class FeatureTrack:
    """Takes the records of one session in order.

    Args:
        n_prbs: PRBs of a record.
    """

    def __init__(self, n_prbs: int) -> None:
        self._floor = NoiseFloor(n_prbs)
        self._means = np.zeros((len(MEANS), len(_BASE), n_prbs), np.float32)
        self._rates = np.array([1 / mean for mean in MEANS], np.float32)[:, None, None]
        self._lines = np.zeros((len(LINE_MEANS), n_prbs, 12), np.float32)  # mean evidence of a tone, by subcarrier
        self._line_rates = np.array([1 / mean for mean in LINE_MEANS], np.float32)[:, None, None]
        self._taken = 0

    def add(self, samples: NDArray[np.int16]) -> Array:
        """Features of shape ``(records, n_prbs, N_FEATURES)`` of samples ``(records, n_prbs * 12, 2)``."""
        return self.of(prb_features(subcarrier_power(samples)))

    def of(self, found: PrbFeatures) -> Array:
        """The same, of the detector's features, where they are there already."""
        rows = [self._one(found.part(slice(k, k + 1))) for k in range(len(found.power))]
        return np.stack(rows) if rows else np.zeros((0, self._lines.shape[1], N_FEATURES), np.float32)

    def _one(self, found: PrbFeatures) -> Array:
        seen = prb_likelihoods(found, self._floor.add(found.power))
        self._taken += 1
        power = np.clip(seen.log_power[0], -1, 8)
        loud = (power > LOUD).astype(np.float32)
        base = np.stack([
            power, seen.roughness[0], seen.ue_llr[0], np.clip(seen.ue_llr_own[0], -4, 4),
            found.tone_llr[0].max(axis=-1), found.peak[0], loud, loud * seen.ue_llr[0],
            np.abs(power - self._means[0, 0]),
        ])  # fmt: skip
        # Until a mean has had as many records as it goes over, it is the plain one.
        rates = np.maximum(self._rates, np.float32(1 / self._taken))
        self._means += rates * (base - self._means)
        rates = np.maximum(self._line_rates, np.float32(1 / self._taken))
        self._lines += rates * (found.tone_llr[0] - self._lines)
        beside = np.concatenate([base[[0, 2, 4]], self._means[1][[0, 2, 4]]])
        edge = np.zeros((len(beside), 1), np.float32)
        row: Array = np.concatenate([
            base, self._means.reshape(-1, len(power)),
            np.concatenate([edge, beside[:, :-1]], axis=1), np.concatenate([beside[:, 1:], edge], axis=1),
            self._lines.max(axis=-1), np.full((1, len(power)), loud.mean(), np.float32),
        ]).T  # fmt: skip
        return row
