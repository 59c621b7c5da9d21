"""The context of a measurement, and its interface."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from twinlink_measure.setting import Setting

from .contest import Contestant, Round
from .machine import Machine
from .verdict import Part

TRANSPORTS = ("zeromq", "zenoh")  # of twinlink over a library, those that are measured
DIRECT = "tcp"  # that over plain sockets
NEEDS_ROOT = "needs root, for network namespaces"


@dataclass
class Bench:
    """The run.

    Attributes:
        wanted: names of the selected goals.
        rounds: number of rounds, each with new processes.
        quick: a minimal run that shows that it works.
        stall_s: how long a peer stays stopped (G11).
        machine: what it runs on, which decides on some limits.
        stopped: whether the end was requested.
        step: called with the current activity and the finished share of the measurement.
        reasons: why part of a goal was not measured.
    """

    wanted: frozenset[str]
    rounds: int
    quick: bool
    stall_s: float
    machine: Machine
    stopped: Callable[[], bool]
    step: Callable[[str, float], None]
    reasons: dict[str, list[str]] = field(default_factory=dict)

    def rounds_of(
        self, what: str, contestants: Sequence[Contestant], setting: Setting, rounds: int | None = None
    ) -> Iterator[Round]:
        """Each round, entered.  Raises Interrupted if the end is requested."""
        count = rounds or self.rounds
        for number in range(count):
            self.step(f"{what}, round {number + 1} of {count}", number / count)
            with Round(contestants, setting, self.stopped, number) as entered:
                yield entered

    def scaled(self, count: int, quick: int) -> int:
        """``count``, or ``quick`` in a quick run."""
        return quick if self.quick else count

    def missing(self, goal: str, reason: str) -> None:
        """Note why part of this goal was not measured."""
        known = self.reasons.setdefault(goal, [])
        if reason not in known:
            known.append(reason)

    def missing_for(self, goals: Sequence[str], lost: Mapping[str, str]) -> None:
        """Note the contestants that failed, which these goals need."""
        for goal in goals:
            if goal in self.wanted:
                for reason in lost.values():
                    self.missing(goal, reason)


def is_root() -> bool:
    """Whether namespaces can be made."""
    return os.geteuid() == 0


class Measurement(ABC):
    """A measurement for one goal or several.

    Attributes:
        goals: their names.
        seconds: approximate duration with the defaults, for the progress.
    """

    goals: tuple[str, ...]
    seconds: float

    @abstractmethod
    def run(self, bench: Bench) -> None:
        """Measure; results before Interrupted are kept."""

    @abstractmethod
    def parts(self, bench: Bench) -> list[Part | None]:
        """The figures; those of goals that are not selected are ignored."""
