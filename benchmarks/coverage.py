"""Coverage of 95 % intervals of the mean: G16."""

import numpy as np
from scipy import signal
from twinlink_measure.worker_handle import Interrupted
from twinlink_results import statistics

from .bench import Bench, Measurement
from .verdict import Part

RHO = 0.9
LENGTHS = (100, 200, 500)
SERIES = 1500  # of each length: +- 1.1 % around 95 %
SEED = 16


class Coverage(Measurement):
    """Synthetic series of mean 0 with a known memory."""

    goals = ("G16",)
    seconds = 25.0

    def __init__(self) -> None:
        self._held: dict[int, list[bool]] = {n: [] for n in LENGTHS}

    def run(self, bench: Bench) -> None:
        """Many series of each length."""
        generator = np.random.default_rng(SEED)
        count = bench.scaled(SERIES, 40)
        for number in range(count):
            bench.step("coverage of the intervals", number / count)
            if bench.stopped():
                raise Interrupted
            for n, held in self._held.items():
                noise = generator.normal(size=n)
                noise[0] /= np.sqrt(1 - RHO**2)  # stationary from the start
                interval = statistics.mean_interval(signal.lfilter([1.0], [1.0, -RHO], noise))
                assert interval is not None
                held.append(interval.low <= 0 <= interval.high)

    def parts(self, bench: Bench) -> list[Part | None]:
        """Coverage for each length."""
        found: list[Part | None] = []
        for n, held in self._held.items():
            if held:
                between = statistics.share_interval(sum(held), len(held))
                interval = (between[0] * 100, between[1] * 100) if between else None
                share = 100 * sum(held) / len(held)
                name = f"n = {n}, {len(held)} series"
                found.append(Part("G16", name, share, 93, 97, interval, 0.95, " %"))
        return found
