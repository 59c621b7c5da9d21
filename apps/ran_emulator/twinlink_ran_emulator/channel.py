"""Fading of one UE's uplink: the tapped delay line models of 3GPP TR 38.901, at the subcarriers of an OFDM symbol.

The taps fade independently with Rayleigh amplitude and the Jakes Doppler spectrum, each as a sum of sinusoids
(plane waves from random directions).  The response is computed at each subcarrier directly; there is no time-domain
signal, since a gNB's E3 interface delivers symbols after the FFT.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Profile = Literal["TDL-A", "TDL-C"]

SINUSOIDS_PER_TAP = 16  # enough for a Gaussian sum within the resolution of eight bits

# (normalised delay, power in dB), 3GPP TR 38.901 tables 7.7.2-1 and 7.7.2-3.
_TAPS: dict[Profile, tuple[tuple[float, float], ...]] = {
    "TDL-A": (
        *((0.0000, -13.4), (0.3819, 0.0), (0.4025, -2.2), (0.5868, -4.0), (0.4610, -6.0), (0.5375, -8.2)),
        *((0.6708, -9.9), (0.5750, -10.5), (0.7618, -7.5), (1.5375, -15.9), (1.8978, -6.6), (2.2242, -16.7)),
        *((2.1718, -12.4), (2.4942, -15.2), (2.5119, -10.8), (3.0582, -11.3), (4.0810, -12.7), (4.4579, -16.2)),
        *((4.5695, -18.3), (4.7966, -18.9), (5.0066, -16.6), (5.3043, -19.9), (9.6586, -29.7)),
    ),
    "TDL-C": (
        *((0.0000, -4.4), (0.2099, -1.2), (0.2219, -3.5), (0.2329, -5.2), (0.2176, -2.5), (0.6366, 0.0)),
        *((0.6448, -2.2), (0.6560, -3.9), (0.6584, -7.4), (0.7935, -7.1), (0.8213, -10.7), (0.9336, -11.1)),
        *((1.2285, -5.1), (1.3083, -6.8), (2.1704, -8.7), (2.7105, -13.2), (4.2589, -13.9), (4.6003, -13.9)),
        *((5.4902, -15.8), (5.6077, -17.1), (6.3065, -16.0), (6.6374, -15.7), (7.0427, -21.6), (8.6523, -22.8)),
    ),
}


@dataclass(frozen=True, slots=True)
class TappedDelayLine:
    """One realisation of a TDL channel; its mean power gain is 1.

    Attributes:
        delays_s: tap delays in seconds, shape ``(taps,)``.
        amplitudes: mean tap amplitudes, shape ``(taps,)``.
        doppler_hz: Doppler shift of each plane wave in Hz, shape ``(taps, sinusoids)``.
        phases: phase of each plane wave at time 0 in radians, shape ``(taps, sinusoids)``.
    """

    delays_s: NDArray[np.float64]
    amplitudes: NDArray[np.float64]
    doppler_hz: NDArray[np.float64]
    phases: NDArray[np.float64]

    @classmethod
    def draw(
        cls, rng: np.random.Generator, profile: Profile, delay_spread_s: float, max_doppler_hz: float
    ) -> "TappedDelayLine":
        """A realisation with the given RMS delay spread (scaled as in TR 38.901 clause 7.7.3) and maximum Doppler."""
        taps = np.array(_TAPS[profile])
        power = 10 ** (taps[:, 1] / 10)
        shape = (len(taps), SINUSOIDS_PER_TAP)
        directions = rng.uniform(0, 2 * np.pi, shape)
        return cls(
            delays_s=taps[:, 0] * delay_spread_s,
            amplitudes=np.sqrt(power / power.sum()),
            doppler_hz=max_doppler_hz * np.cos(directions),
            phases=rng.uniform(0, 2 * np.pi, shape),
        )

    def response(self, times_s: NDArray[np.float64], frequencies_hz: NDArray[np.float64]) -> NDArray[np.complex128]:
        """Complex gain at each time and baseband frequency, shape ``(times, frequencies)``.

        Summed tap by tap rather than as one matrix product, so that the result does not depend on BLAS and thread
        count.
        """
        gains = np.zeros((len(times_s), len(frequencies_hz)), np.complex128)
        for delay_s, amplitude, doppler_hz, phases in zip(
            self.delays_s, self.amplitudes, self.doppler_hz, self.phases, strict=True
        ):
            waves = np.exp(1j * (2 * np.pi * times_s[:, None] * doppler_hz + phases))
            tap = amplitude * waves.sum(axis=1) / np.sqrt(SINUSOIDS_PER_TAP)
            gains += tap[:, None] * np.exp(-2j * np.pi * delay_s * frequencies_hz)
        return gains
