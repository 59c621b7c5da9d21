"""OFDM Retransmit: converts subcarriers to samples in time."""

from typing import Any

import numpy as np

from twinlink.control import MAX_PRBS
from twinlink.spectrum import SUBCARRIERS_PER_PRB

from .arguments import finite, whole
from .gnuradio_compat import gr, keep, pmt
from .guarded_block import GuardedBlock
from .ofdm import SYMBOLS_PER_SLOT, bins_of, cyclic_prefix, modulate

MAX_FFT = 65536  # 3GPP has 4096 at most; GNU Radio's buffers limit what a block can put out at once


class Retransmit(GuardedBlock, gr.basic_block):  # type: ignore[misc]
    """Applies IFFT and cyclic prefix (`ofdm.modulate`) to a stream of whole symbols in natural PRB order.

    Symbols follow each other without gaps, as symbols 0, 1, 2, ... of consecutive slots: a recording with one symbol of
    each 10 ms is played faster than it was recorded.

    Args:
        n_prbs: PRBs of a symbol: ``n_prbs * 12`` input samples each.
        fft_size: size of the IFFT; the output rate is ``fft_size * scs_hz``.
        scs_hz: subcarrier spacing.
        scale: factor on the amplitude, such as ``1 / 2048`` to bring int16 samples to about 1.

    Raises ConfigurationError, or ValueError if the symbol does not fit the FFT or the prefix has no whole samples.
    """

    def __init__(self, n_prbs: int = 106, fft_size: int = 2048, scs_hz: int = 30_000, scale: float = 1 / 2048) -> None:
        n_prbs = whole("n_prbs", n_prbs, 1, MAX_PRBS)
        fft_size, scs_hz = whole("fft_size", fft_size, 1, MAX_FFT), whole("scs_hz", scs_hz, 1)
        scale = finite("scale", scale)
        bins_of(n_prbs, fft_size)
        cyclic_prefix(fft_size, scs_hz, 0)
        gr.basic_block.__init__(self, name="OFDM Retransmit", in_sig=[np.complex64], out_sig=[np.complex64])
        keep(self)
        self._grain = self._subcarriers = n_prbs * SUBCARRIERS_PER_PRB
        self._fft_size, self._scs_hz, self._scale = fft_size, scs_hz, scale
        self._subframe = SYMBOLS_PER_SLOT * scs_hz // 15_000
        self._symbol = 0
        self._longest = fft_size + cyclic_prefix(fft_size, scs_hz, 0)
        self.set_tag_propagation_policy(gr.TPP_DONT)  # offsets do not map; each symbol gets its own packet_len
        self.set_log_level("warning")  # suppresses the info message that the next line causes
        self.set_min_output_buffer(4 * self._longest)

    def forecast(self, noutput_items: int, ninputs: int) -> list[int]:
        """Called by the scheduler."""
        return [self._subcarriers] * ninputs

    def general_work(self, input_items: list[Any], output_items: list[Any]) -> int:
        """Called by the scheduler."""
        samples, out = input_items[0], output_items[0]
        read = written = 0
        while len(samples) - read >= self._subcarriers and len(out) - written >= self._longest:
            part = samples[read : read + self._subcarriers]
            made = modulate(part, self._fft_size, self._scs_hz, self._symbol, self._scale)
            out[written : written + len(made)] = made
            self.add_item_tag(0, self.nitems_written(0) + written, pmt.intern("packet_len"), pmt.from_long(len(made)))
            self._symbol = (self._symbol + 1) % self._subframe
            read += self._subcarriers
            written += len(made)
        self.consume(0, read)
        return written
