"""Whether the machine kept pace: how late each record was, from when it was due until the twin had analysed it.

The schedule of the playout is the clock: record k is due k periods after the first.  It is counted from the record that
was played most punctually, as the first one may be late itself.
"""

import numpy as np

from .evidence import Playout, Rebuilt, Times
from .score import on_air


def played_late_ns(playout: Playout) -> Times:
    """How long after it was due each record was played."""
    due_ns = np.rint(np.arange(len(playout.played_ns)) * playout.period_ns).astype(np.int64)
    late = playout.played_ns - due_ns
    return np.asarray(late - late.min(initial=np.iinfo(np.int64).max))


def late_ns(playout: Playout, rebuilt: Rebuilt | None) -> Times:
    """How long after it was due the twin had analysed each record; of one that it did not get, as `played_late_ns`."""
    late = played_late_ns(playout)
    if rebuilt is None:
        return late
    analysed_ns = on_air(rebuilt.analysed_ns, rebuilt, len(late))
    return np.asarray(late + np.maximum(analysed_ns - playout.played_ns, 0))
