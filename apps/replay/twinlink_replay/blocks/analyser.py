"""PRB Analyser: power per subcarrier and PRB, occupancy and interference, as vectors for GNU Radio's displays."""

from typing import Any

import numpy as np

from twinlink.control import MAX_PRBS
from twinlink.spectrum import SUBCARRIERS_PER_PRB

from ..detection.detector import Detector
from ..detection.features import prb_features, subcarrier_power, to_dbfs
from ..detection.power_trace import PowerTrace
from .arguments import finite, whole
from .gnuradio_compat import gr, keep
from .guarded_block import GuardedBlock, guarded
from .packet import int16_of


class Analyser(GuardedBlock, gr.decim_block):  # type: ignore[misc]
    """Takes whole symbols in natural PRB order; puts out one vector of each kind a symbol.

    Outputs:
        0. average power of each subcarrier in dBFS (float32, ``n_prbs * 12``);
        1. peak hold of that power (the same);
        2. power of each PRB in dBFS (float32, ``n_prbs``);
        3. state of each PRB: 0 free, 1 occupied, 2 interfered (float32, ``n_prbs``), the filtered answer of `Detector`.

    Args:
        n_prbs: PRBs of a symbol, 1 to 275.
        average_records: time constant of the average, in symbols, from 1.

    Raises ConfigurationError for other values.
    """

    def __init__(self, n_prbs: int = 106, average_records: float = 50.0) -> None:
        n_prbs = whole("n_prbs", n_prbs, 1, MAX_PRBS)
        average_records = finite("average_records", average_records, 1)
        width = n_prbs * SUBCARRIERS_PER_PRB
        gr.decim_block.__init__(
            self,
            name="PRB Analyser",
            in_sig=[np.complex64],
            out_sig=[(np.float32, (length,)) for length in (width, width, n_prbs, n_prbs)],
            decim=width,
        )
        keep(self)
        self.set_relative_rate(1.0 / width)
        self._grain = width
        self._width, self._n_prbs, self._average_records = width, n_prbs, average_records
        self._trace = PowerTrace(width, average_records)
        self._detector = Detector(n_prbs, settle=False)

    @guarded
    def start(self) -> bool:
        """Called by the scheduler."""
        self._trace = PowerTrace(self._width, self._average_records)
        self._detector = Detector(self._n_prbs, settle=False)
        return True

    def reset_peak(self) -> None:
        """Reset the peak hold."""
        self._trace.reset_peak()

    def work(self, input_items: list[Any], output_items: list[Any]) -> int:
        """Called by the scheduler."""
        average, peak, prbs, state = output_items
        count = len(average)
        samples = int16_of(input_items[0][: count * self._width]).reshape(count, self._width, 2)
        power = subcarrier_power(samples)
        features = prb_features(power, samples)
        answer = self._detector.add(features)
        for k in range(count):
            self._trace.add(power[k : k + 1])
            average[k] = to_dbfs(self._trace.average)
            peak[k] = to_dbfs(self._trace.peak)
        prbs[:] = to_dbfs(features.power)
        state[:] = np.where(answer.interfered, 2.0, answer.occupied)
        return count
