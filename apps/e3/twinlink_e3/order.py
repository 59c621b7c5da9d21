"""From the order of FFT bins to the natural order of PRBs and back.

A gNB's FFT has the carrier centre in bin 0, then the frequencies above it, and the frequencies below it at the end.
Subcarrier 0, the lowest of PRB 0, is in bin ``fft_size - n_subcarriers / 2`` (OpenAirInterface calls it
``first_carrier_offset``; 3GPP TS 38.211 clause 5.3.1 places subcarrier k at k - n_subcarriers / 2 spacings from the
centre).  There is no unused DC bin in NR.  dapps 0.0.6 rotates the symbol by the same offset.

    bin      0 ........ n/2-1 | n/2 ...... N-n/2-1 | N-n/2 ...... N-1
    holds    k = n/2 .. n-1   | nothing (guard)    | k = 0 .. n/2-1
"""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from twinlink.spectrum import SUBCARRIERS_PER_PRB

Sample = TypeVar("Sample", bound=np.generic)

FFT_SIZES = (512, 768, 1024, 1536, 2048, 3072, 4096)  # full and 3/4 sampling; by the octets of a symbol


def first_bin(n_prbs: int, fft_size: int) -> int:
    """The FFT bin of subcarrier 0.  Raises ValueError if the PRBs do not fit into the FFT."""
    subcarriers = n_prbs * SUBCARRIERS_PER_PRB
    if not 0 < subcarriers <= fft_size:
        raise ValueError(
            f"{n_prbs} PRBs are {subcarriers} subcarriers, which do not fit into an FFT of {fft_size} bins"
        )
    return fft_size - subcarriers // 2


def natural_from_fft(bins: NDArray[Sample], n_prbs: int) -> NDArray[Sample]:
    """The used subcarriers, lowest frequency first.

    Args:
        bins: one OFDM symbol in FFT order; shape ``(fft_size, ...)``.
        n_prbs: PRBs of the carrier.

    Returns:
        A new array of shape ``(n_prbs * 12, ...)``.

    Raises:
        ValueError: the PRBs do not fit into the FFT.
    """
    first = first_bin(n_prbs, len(bins))
    return np.concatenate((bins[first:], bins[: n_prbs * SUBCARRIERS_PER_PRB // 2]))


def fft_from_natural(subcarriers: NDArray[Sample], fft_size: int) -> NDArray[Sample]:
    """The inverse of `natural_from_fft`: FFT order, zeros in the guard bins.

    Args:
        subcarriers: shape ``(n_prbs * 12, ...)``, lowest frequency first.
        fft_size: number of bins of the result.

    Returns:
        A new array of shape ``(fft_size, ...)``.

    Raises:
        ValueError: not a whole number of PRBs, or they do not fit into the FFT.
    """
    n_prbs, rest = divmod(len(subcarriers), SUBCARRIERS_PER_PRB)
    if rest:
        raise ValueError(f"{len(subcarriers)} subcarriers are not a whole number of PRBs of {SUBCARRIERS_PER_PRB}")
    first = first_bin(n_prbs, fft_size)
    bins = np.zeros((fft_size, *subcarriers.shape[1:]), subcarriers.dtype)
    half = fft_size - first
    bins[first:] = subcarriers[:half]
    bins[:half] = subcarriers[half:]
    return bins
