"""Age of information at the twin, and one-way delay.  All processes of the demo read one host's clock."""

from typing import Any

import numpy as np

from twinlink.protocol.rtt import percentiles

from .evidence import Playout, Rebuilt, Times


def spread(values: Times) -> dict[str, int] | None:
    """The `percentiles`; None without values."""
    return percentiles(values.tolist()) if len(values) else None


def one_way_ns(rebuilt: Rebuilt) -> Times:
    """One-way delay of each message, from the sender's timestamp to the receiver's (RFC 7679)."""
    return np.asarray(rebuilt.received_ns - rebuilt.sent_ns)


def age(playout: Playout, rebuilt: Rebuilt) -> tuple[Times, Times, Times]:
    """Age of information of the twin: time since the newest analysed record was played by the gNB.

    Returns the times at which it drops (Unix ns), and the age just before (a peak; from the second drop on, the first
    one repeats its value after) and just after.
    """
    valid = (rebuilt.record >= 0) & (rebuilt.record < len(playout.played_ns))
    analysed, played = rebuilt.analysed_ns[valid], playout.played_ns[rebuilt.record[valid]]
    order = np.argsort(analysed, kind="stable")
    analysed, newest = analysed[order], np.maximum.accumulate(played[order]) if len(order) else played
    last = np.flatnonzero(np.diff(analysed, append=-1) != 0)  # of records analysed together, the newest counts
    analysed, newest = analysed[last], newest[last]
    before = analysed - np.concatenate((newest[:1], newest[:-1]))
    return analysed, before, analysed - newest


def age_summary(playout: Playout, rebuilt: Rebuilt) -> dict[str, Any] | None:
    """Mean over time and the spread of the peaks; None without two records."""
    analysed, before, after = age(playout, rebuilt)
    if len(analysed) < 2:
        return None
    width = np.diff(analysed)
    mean = float(((after[:-1] + before[1:]) / 2 * width).sum() / width.sum())
    return {"mean": round(mean), "peak": spread(before[1:])}
