"""Round trips of twinlink and the baselines, in turn: L1 to L4, L8, G4."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from twinlink_measure.cell_run import RoundResult
from twinlink_measure.setting import Loopback

from .bench import DIRECT, Bench, Measurement
from .contest import Contestant, plain
from .machine import Machine
from .verdict import Part, ratio

KB, MB = 1024, 1024 * 1024
SMALL = (100, 10 * KB, 100 * KB)
BLOCKING = f"{DIRECT}-blocking"
CONTESTANTS = [
    *plain("zeromq", "zenoh", DIRECT, "raw-zeromq", "raw-zenoh", "raw-tcp", "raw-mqtt"),
    Contestant(BLOCKING, DIRECT, {"busy_poll": False}),
]
BLOCKS = 10  # of each contestant and payload in a round

Figure = Callable[[Sequence[RoundResult]], float]


def _rtt(percent: float) -> Figure:
    def figure(blocks: Sequence[RoundResult]) -> float:
        every = np.concatenate([block.sent["rtt_ns"][block.sent["acknowledged"]] for block in blocks])
        return float(np.percentile(every, percent)) if len(every) else 0.0

    return figure


def _exchange_ns(blocks: Sequence[RoundResult]) -> float:
    """Mean time per block between calls of send: send and flush, or send and receive."""
    return float(np.median([block.entry["elapsed_ns"] / block.entry["sent"] for block in blocks]))


def per_message(name: str) -> Figure:
    """An amount per message, over the blocks."""

    def figure(blocks: Sequence[RoundResult]) -> float:
        return float(sum(block.entry[name] or 0 for block in blocks) / sum(block.entry["sent"] for block in blocks))

    return figure


@dataclass(frozen=True)
class Comparison:
    """A ratio of two contestants at some payloads.

    Attributes:
        least, most: the goal; None for a figure that is only reported.
        cheap: ``most`` on a machine whose wake-ups are cheap, if that is another.
    """

    goal: str
    one: str
    other: str
    payloads: tuple[int, ...]
    name: str
    figure: Figure
    least: float | None = None
    most: float | None = None
    cheap: float | None = None

    def most_on(self, machine: Machine) -> float | None:
        """The limit of this kind of machine."""
        return self.most if machine.dear or self.cheap is None else self.cheap


P50, P99 = _rtt(50), _rtt(99)
SENDER, RECEIVER = per_message("sender_cpu_ns"), per_message("receiver_cpu_ns")

COMPARISONS = (
    Comparison("L1", "zeromq", "raw-zeromq", SMALL, "p50", P50, most=0.7, cheap=1.0),
    Comparison("L1", "zeromq", "raw-zeromq", SMALL, "p99", P99, most=1.1),
    Comparison("L1", "zeromq", "raw-zeromq", SMALL, "send + flush", _exchange_ns),
    Comparison("L2", "zenoh", "raw-zenoh", SMALL, "p50", P50, most=0.8, cheap=1.05),
    Comparison("L2", "zenoh", "raw-zenoh", SMALL, "p99", P99, most=1.1),
    Comparison("L2", "zenoh", "raw-zenoh", SMALL, "send + flush", _exchange_ns),
    Comparison("L3", DIRECT, "raw-tcp", SMALL, "p50", P50, most=0.8, cheap=1.5),
    Comparison("L3", BLOCKING, "raw-tcp", SMALL, "p50", P50, most=1.5),
    Comparison("L4", "zeromq", "raw-zeromq", (MB,), "p50", P50, most=0.8),
    Comparison("L4", "zenoh", "raw-zenoh", (MB,), "p50", P50, most=1.0),
    Comparison("L4", DIRECT, "raw-tcp", (MB,), "p50", P50, most=1.1),
    Comparison("L8", "zeromq", "raw-zeromq", (100,), "sender", SENDER, most=1.35),
    Comparison("L8", "zeromq", "raw-zeromq", (100,), "receiver", RECEIVER, most=1.35),
    Comparison("L8", "zenoh", "raw-zenoh", (100,), "sender", SENDER, most=1.35),
    Comparison("L8", "zenoh", "raw-zenoh", (100,), "receiver", RECEIVER, most=1.35),
    Comparison("L8", DIRECT, "raw-tcp", (100,), "sender", SENDER),
    Comparison("L8", DIRECT, "raw-tcp", (100,), "receiver", RECEIVER),
    Comparison("G4", "raw-mqtt", "zeromq", (100,), "p50", P50, least=10),
    Comparison("G4", "raw-mqtt", "zeromq", (MB,), "p50", P50, least=25),
    Comparison("G4", "raw-mqtt", "zenoh", (100,), "p50", P50, least=10),
    Comparison("G4", "raw-mqtt", "zenoh", (MB,), "p50", P50, least=25),
    Comparison("G4", "raw-mqtt", "raw-tcp", (100, MB), "p50", P50),
)


class RoundTrips(Measurement):
    """Closed loops: the next message leaves when the one before was answered."""

    goals = ("L1", "L2", "L3", "L4", "L8", "G4")
    seconds = 210.0

    def __init__(self) -> None:
        self._rounds: list[dict[tuple[str, int], list[RoundResult]]] = []

    def run(self, bench: Bench) -> None:
        """Measure block by block, with the contestants in random order."""
        comparisons = [one for one in COMPARISONS if one.goal in bench.wanted]
        cells = {
            (name, octets)
            for one in comparisons
            for octets in self._payloads(bench, one)
            for name in (one.one, one.other)
        }
        contestants = [one for one in CONTESTANTS if any(name == one.name for name, _ in cells)]
        for each in bench.rounds_of("round trips", contestants, Loopback()):
            taken: dict[tuple[str, int], list[RoundResult]] = {cell: [] for cell in cells}
            for _ in range(bench.scaled(BLOCKS, 2)):
                for octets in sorted({octets for _, octets in cells}):
                    count = bench.scaled(200 if octets < MB else 10, 20 if octets < MB else 3)
                    for name in each.shuffled(sorted(name for name, size in cells if size == octets)):
                        block = each.take(name, octets, count)
                        if block is not None:
                            taken[name, octets].append(block)
            for one in comparisons:
                bench.missing_for(
                    [one.goal], {name: each.lost[name] for name in (one.one, one.other) if name in each.lost}
                )
            self._rounds.append({cell: blocks for cell, blocks in taken.items() if blocks})

    @staticmethod
    def _payloads(bench: Bench, comparison: Comparison) -> tuple[int, ...]:
        return comparison.payloads[:1] if bench.quick else comparison.payloads

    def parts(self, bench: Bench) -> list[Part | None]:
        """A ratio for each comparison and payload."""
        found = []
        for one in COMPARISONS:
            if one.goal not in bench.wanted:
                continue
            for octets in self._payloads(bench, one):
                pairs = [
                    (one.figure(blocks[one.one, octets]), one.figure(blocks[one.other, octets]))
                    for blocks in self._rounds
                    if (one.one, octets) in blocks and (one.other, octets) in blocks
                ]
                name = f"{one.one} / {one.other} {size(octets)} {one.name}"
                most = one.most_on(bench.machine)
                found.append(ratio(one.goal, name, pairs, least=one.least, most=most, scale=1e-3, unit=" us"))
        return found


def size(octets: int) -> str:
    """A size such as ``10 KB``."""
    return f"{octets // MB} MB" if octets >= MB else f"{octets // KB} KB" if octets >= KB else f"{octets} B"
