"""OFDM modulation: IFFT and normal cyclic prefix, 3GPP TS 38.211 clause 5.3.1."""

import numpy as np
from numpy.typing import NDArray

from twinlink.spectrum import SUBCARRIERS_PER_PRB

SYMBOLS_PER_SLOT = 14  # normal cyclic prefix
SCS_HZ = (15_000, 30_000, 60_000, 120_000)


def cyclic_prefix(fft_size: int, scs_hz: int, symbol: int) -> int:
    """Number of samples of the normal cyclic prefix of a symbol, counted within its subframe (1 ms).

    The first symbol of each half subframe has a longer prefix.  Raises ValueError where the length is not a whole
    number of samples.
    """
    if scs_hz not in SCS_HZ:
        raise ValueError(f"the subcarrier spacing must be one of {', '.join(map(str, SCS_HZ))} Hz, not {scs_hz}")
    slots = scs_hz // 15_000
    # In units of 1/2048 of a symbol: 144, and 16 * 2^mu more for symbols 0 and 7 * 2^mu of a subframe.
    length = fft_size * (144 + (16 * slots if symbol % (7 * slots) == 0 else 0))
    if length % 2048:
        raise ValueError(f"an FFT of {fft_size} has no cyclic prefix of whole samples; use a multiple of 128")
    return length // 2048


def bins_of(n_prbs: int, fft_size: int) -> NDArray[np.intp]:
    """FFT bin of each subcarrier in natural order, shape ``(n_prbs * 12,)``.

    Subcarrier ``n_prbs * 6`` is at the carrier centre (bin 0).  Raises ValueError if the FFT is too small.
    """
    count = n_prbs * SUBCARRIERS_PER_PRB
    if count > fft_size:
        raise ValueError(f"{n_prbs} PRBs have {count} subcarriers, more than an FFT of {fft_size} holds")
    return (np.arange(count) - count // 2) % fft_size


def modulate(
    subcarriers: NDArray[np.complex64], fft_size: int, scs_hz: int, symbol: int, scale: float = 1.0
) -> NDArray[np.complex64]:
    """Modulate one symbol: cyclic prefix and ``fft_size`` samples at ``fft_size * scs_hz`` samples a second.

    Args:
        subcarriers: in natural order, complex64, shape ``(n_prbs * 12,)``.
        fft_size: size of the IFFT, which is unitary: it preserves the energy of the symbol.
        scs_hz: subcarrier spacing in Hz.
        symbol: index within the subframe, which determines the length of the prefix.
        scale: factor on the amplitude.

    Returns:
        complex64, shape ``(cyclic_prefix + fft_size,)``.
    """
    grid = np.zeros(fft_size, np.complex128)
    grid[bins_of(len(subcarriers) // SUBCARRIERS_PER_PRB, fft_size)] = subcarriers
    samples = np.fft.ifft(grid, norm="ortho") * scale
    prefix = cyclic_prefix(fft_size, scs_hz, symbol)
    return np.asarray(np.concatenate([samples[fft_size - prefix :], samples]), np.complex64)
