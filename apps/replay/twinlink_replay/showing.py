"""Shows on the live page what the twin makes of records."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from twinlink_live.view import View
from twinlink_live.waterfall import INTERFERED, USED
from twinlink_live.waterfall import Record as Row

from .blocks.observer import Record


class Showing:
    """A `Watcher` of the twin that shows on a view."""

    def __init__(self, view: View) -> None:
        self._view = view

    def on_interference(self, prbs: Sequence[int]) -> None:
        """See `Watcher`."""
        self._view.on_interference(prbs)

    def on_analysed(self, records: list[Record], used: NDArray[np.bool_], interfered: NDArray[np.bool_]) -> None:
        """See `Watcher`."""
        if not self._view.is_watched:
            return
        uses = np.where(interfered, INTERFERED, used * USED).astype(np.uint8)
        # The centre is that of the record's PRBs, which are taken for the middle of the carrier.
        for use, one in zip(uses, records, strict=True):
            row = Row(use, one.first_prb, one.centre_hz, one.scs_hz, one.n_prbs + 2 * one.first_prb, one.observed_ns)
            self._view.on_analysed(row)
