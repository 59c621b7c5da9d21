"""The figures of `twinlink ping`: round-trip times and one-way delays, from the four timestamps of each answer."""

from array import array
from typing import TYPE_CHECKING, Any

from twinlink import Ack
from twinlink.protocol.rtt import percentiles

from ..appkit import formatting

if TYPE_CHECKING:  # NumPy is loaded for the summary, so that the first message need not wait for it
    import numpy as np
    from numpy.typing import NDArray

    _Ints = NDArray[np.int64]
    _Floats = NDArray[np.float64]

_COLUMNS = ("min", "mean", "p50", "p99", "max", "mdev")
_ROWS = {
    "rtt_ns": "rtt",
    "rtt_without_residence_ns": "  without residence",
    "one_way_delay_ns": "one-way delay, there",
    "one_way_delay_back_ns": "one-way delay, back",
}


class PingStatistics:
    """Takes acks; computes when asked.  An ack takes 40 octets, whatever the length of the run."""

    def __init__(self) -> None:
        self._of_session: dict[int, array[int]] = {}  # RTT and T1 to T4 of each ack, by the peer's session

    def add(self, ack: Ack) -> None:
        """Take one in."""
        stamps = self._of_session.setdefault(ack.epoch, array("q"))
        stamps.extend((ack.rtt_ns, ack.sent_ns, ack.peer_received_ns, ack.peer_sent_ns, ack.received_ns))

    def figures(self) -> dict[str, Any]:
        """Each series by its name in the JSON summary; None without an answer, or without an estimate of the clock.

        ``one_way_bound_ns`` is by how much each one-way delay may be off, the greatest over all answers.
        """
        import numpy as np

        sessions = [np.frombuffer(stamps, np.int64).reshape(-1, 5) for stamps in self._of_session.values()]
        delays = [found for stamps in sessions if (found := _one_way(stamps)) is not None]
        bounds = [float(bound.max()) for _, _, bound in delays]
        return {
            "rtt_ns": _series([stamps[:, 0] for stamps in sessions]),
            "rtt_without_residence_ns": _series([stamps[:, 0] - (stamps[:, 3] - stamps[:, 2]) for stamps in sessions]),
            "one_way_delay_ns": _series([there for there, _, _ in delays]),
            "one_way_delay_back_ns": _series([back for _, back, _ in delays]),
            "one_way_bound_ns": round(max(bounds)) if bounds else None,
        }


def _one_way(stamps: "_Ints") -> "tuple[_Ints, _Ints, _Floats] | None":
    """Delays to the peer and back, and their bound, of each answer of a session; None if no clock offset is known."""
    import numpy as np

    from ..appkit import clock

    t1, t2, t3, t4 = stamps[:, 1:].T
    try:
        estimate = clock.estimate(t1, t2, t3, t4)
    except ValueError:
        return None  # every network round trip is negative: a clock was set each time
    offset = np.rint(estimate.offset_at(t1)).astype(np.int64)
    return t2 - t1 - offset, t4 - t3 + offset, estimate.bound_at(t1)


def _series(parts: "list[_Ints]") -> dict[str, int] | None:
    """Number, percentiles, mean, and mdev: that of ping(8), the standard deviation of the population."""
    import numpy as np

    if not parts:
        return None
    values = np.concatenate(parts)
    return percentiles(values.tolist()) | {"mean": round(float(values.mean())), "mdev": round(float(values.std()))}


def table(figures: dict[str, Any]) -> list[str]:
    """The lines for a person, in ms, within 80 columns."""
    rows = {shown: figures[name] for name, shown in _ROWS.items() if figures[name]}
    if not rows:
        return []
    lines = [f"{'ms':22}" + "".join(f"{column:>9}" for column in _COLUMNS)]
    for shown, series in rows.items():
        lines.append(f"{shown:22}" + "".join(f"{series[column] / 1e6:9.3f}" for column in _COLUMNS))
    bound_ns = figures["one_way_bound_ns"]
    if bound_ns is None:
        lines.append("No one-way delay: a clock was set during every exchange.")
    else:
        lines.append(f"The clock offset, and with it each one-way delay, is known to ±{formatting.time(bound_ns)}.")
    return lines
