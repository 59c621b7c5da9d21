"""Delay variation under load: G15."""

import numpy as np
from twinlink_measure.cell_run import RoundResult
from twinlink_measure.setting import Loopback
from twinlink_results import metrics

from .bench import TRANSPORTS, Bench, Measurement
from .contest import plain
from .floods import arrivals_per_s
from .verdict import Part, ratio

OCTETS = 100
LOAD = 0.5  # as a share of the rate of a flood of the same transport in the same round


class Variation(Measurement):
    """A schedule at half of twinlink's greatest rate, the same for raw TCP."""

    goals = ("G15",)
    seconds = 60.0

    def __init__(self) -> None:
        self._pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in TRANSPORTS}
        self._rates: dict[str, list[float]] = {name: [] for name in TRANSPORTS}

    def run(self, bench: Bench) -> None:
        """Measure a flood, then the schedule on both."""
        for each in bench.rounds_of("delay variation", plain(*TRANSPORTS, "raw-tcp"), Loopback()):
            for name in each.shuffled(TRANSPORTS):
                flood = each.take(name, OCTETS, bench.scaled(10_000, 1000), closed=False)
                if flood is None:
                    continue
                rate = LOAD * arrivals_per_s(flood)
                if rate <= 0:
                    each.fail(name, "not every message of a flood arrived")
                    continue
                seen: dict[str, list[float]] = {name: [], "raw-tcp": []}
                for _ in range(bench.scaled(3, 1)):
                    for one in each.shuffled([name, "raw-tcp"]):
                        block = each.take(
                            one, OCTETS, max(100, int(rate * bench.scaled(50, 5) / 100)), closed=False, rate_hz=rate
                        )
                        if block is not None:
                            seen[one].append(ipdv_p95_ns(block))
                if all(seen.values()):
                    self._pairs[name].append((float(np.median(seen[name])), float(np.median(seen["raw-tcp"]))))
                    self._rates[name].append(rate)
            bench.missing_for(self.goals, each.lost)

    def parts(self, bench: Bench) -> list[Part | None]:
        """Figures of both transports."""
        found = []
        for name, pairs in self._pairs.items():
            rate = f" at {np.median(self._rates[name]):,.0f} messages/s" if pairs else ""
            found.append(ratio("G15", f"{name} / raw-tcp{rate}", pairs, most=1.5, scale=1e-3, unit=" us"))
        return found


def ipdv_p95_ns(taken: RoundResult) -> float:
    """p95 of the absolute one-way IPDV (RFC 3393) of consecutive messages.

    Absolute, because a receiver that catches up makes most values negative, and the p95 of the signed ones as well.
    """
    received = taken.received[np.argsort(taken.received["sequence"], kind="stable")]
    delays = metrics.one_way_delays(received, None, "loopback")
    return float(np.percentile(np.abs(np.diff(delays)[np.diff(received["sequence"]) == 1]), 95))
