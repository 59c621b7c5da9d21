"""FFT order and natural order: inverse of each other, and as dapps 0.0.6 and OpenAirInterface have it."""

import numpy as np
import pytest
from twinlink_e3 import fft_from_natural, first_bin, natural_from_fft

CARRIERS = [(51, 1024), (106, 1536), (106, 2048), (273, 4096), (51, 768)]


@pytest.mark.parametrize(("n_prbs", "fft_size"), CARRIERS)
def test_the_two_functions_are_inverse(n_prbs: int, fft_size: int) -> None:
    natural = np.random.default_rng(1).integers(-2048, 2048, (n_prbs * 12, 2), np.int16)
    bins = fft_from_natural(natural, fft_size)
    assert (bins.shape, bins.dtype.name) == ((fft_size, 2), "int16")
    assert np.array_equal(natural_from_fft(bins, n_prbs), natural)
    assert np.count_nonzero(bins.any(axis=1)) == np.count_nonzero(natural.any(axis=1))  # the guard is empty


@pytest.mark.parametrize(("n_prbs", "fft_size"), CARRIERS)
def test_the_order_is_that_of_the_dapp_library(n_prbs: int, fft_size: int) -> None:
    bins = np.arange(fft_size)
    # dapps 0.0.6 rotates by first_carrier_offset and then takes subcarrier k from place k.
    rotated = np.roll(bins, -(fft_size - n_prbs * 12 // 2))
    assert np.array_equal(natural_from_fft(bins, n_prbs), rotated[: n_prbs * 12])


@pytest.mark.parametrize(("n_prbs", "fft_size"), CARRIERS)
def test_a_tone_lands_on_its_subcarrier(n_prbs: int, fft_size: int) -> None:
    """A subcarrier k is k - n/2 spacings from the carrier centre: the FFT itself says in which bin that is."""
    for k in (0, 1, n_prbs * 6 - 1, n_prbs * 6, n_prbs * 12 - 1):
        spacings = k - n_prbs * 6
        tone = np.exp(2j * np.pi * spacings * np.arange(fft_size) / fft_size)
        power = np.abs(natural_from_fft(np.fft.fft(tone), n_prbs))
        assert int(power.argmax()) == k


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        first_bin(106, 1024)
    with pytest.raises(ValueError, match="whole number of PRBs"):
        fft_from_natural(np.zeros((13, 2), np.int16), 1024)
    with pytest.raises(ValueError, match="do not fit"):
        natural_from_fft(np.zeros(1024), 0)
