"""The estimated offset of two clocks that are the same: G14."""

import numpy as np
from twinlink_measure.cell_run import RoundResult
from twinlink_measure.cells import DIRECTIONS
from twinlink_measure.setting import Loopback
from twinlink_results import metrics, statistics

from .bench import TRANSPORTS, Bench, Measurement
from .contest import plain
from .verdict import Part

RUNS = 20
OCTETS = (100, 1024)
SUBJECTS = (*TRANSPORTS, "raw-tcp")  # as in a sweep, bare TCP included

Cell = tuple[dict[str, str], RoundResult]


class Offsets(Measurement):
    """Short sweeps in new processes; each gives one estimate of a true offset of 0."""

    goals = ("G14",)
    seconds = 25.0

    def __init__(self) -> None:
        self._runs: list[tuple[float, float]] = []  # error and bound, in ns
        self._links: list[tuple[float, float]] = []  # without bare TCP
        self._cells: list[tuple[float, float]] = []

    def run(self, bench: Bench) -> None:
        """Measure both directions and two payloads of all subjects."""
        for each in bench.rounds_of("clock offset", plain(*SUBJECTS), Loopback(), bench.scaled(RUNS, 1)):
            cells: list[Cell] = []
            for octets in OCTETS:
                for direction in DIRECTIONS:
                    for name in each.shuffled(SUBJECTS):
                        block = each.take(name, octets, bench.scaled(200, 30), direction=direction)
                        if block is not None:
                            cells.append(({"direction": direction, "subject": name}, block))
            bench.missing_for(self.goals, each.lost)
            self._runs += _errors(cells)
            self._links += _errors([cell for cell in cells if cell[0]["subject"] in TRANSPORTS])
            for cell in cells:
                self._cells += _errors([cell])

    def parts(self, bench: Bench) -> list[Part | None]:
        """Errors of the runs, and coverage of their bounds and those of single cells."""
        found: list[Part | None] = []
        if self._runs:
            found.append(_error_p95(f"error p95 of {len(self._runs)} runs", self._runs, most=2))
            found.append(_error_p95("error p95 from the links' own exchanges alone", self._links))
            bound = np.array(self._runs)[:, 1]
            found.append(Part("G14", "bound, median", float(np.median(bound)) / 1e3, unit=" us"))
        for what, seen in (("runs", self._runs), ("single cells", self._cells)):
            if seen:
                error, bound = np.array(seen).T
                covered = int((error <= bound).sum())
                share, interval = 100 * covered / len(error), statistics.share_interval(covered, len(error))
                name = f"truth within the bound, {covered} of {len(error)} {what}"
                around = (interval[0] * 100, interval[1] * 100) if interval else None
                found.append(Part("G14", name, share, least=99, interval=around, level=0.95, unit=" %"))
        return found


def _error_p95(name: str, runs: list[tuple[float, float]], most: float | None = None) -> Part | None:
    if not runs:
        return None
    error = np.array(runs)[:, 0]
    p95 = statistics.percentile(np.sort(error), 0.95) / 1e3
    return Part("G14", name, p95, most=most, unit=" us", values=tuple(error / 1e3))


def _errors(cells: list[Cell]) -> list[tuple[float, float]]:
    clock = metrics.run_clocks([(cell, taken.sent) for cell, taken in cells]).get(DIRECTIONS[0])
    return [] if clock is None else [(abs(clock.offset_ns), clock.bound_ns)]
