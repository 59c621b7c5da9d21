"""The rows from which figures and statistics are made."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlink.appkit.records import Table


@dataclass(frozen=True, slots=True)
class Rows:
    """Those of a cell.

    Attributes:
        sent: as in the file, empty where there is none.
        arrived: the first arrival of each message (`twinlink_results.metrics.arrivals`).
        one_way_ns: the delay of each row of ``arrived``, without the clock offset.
    """

    sent: Table
    arrived: Table
    one_way_ns: NDArray[np.float64]


Records = dict[str, Rows]  # by the cell's id
