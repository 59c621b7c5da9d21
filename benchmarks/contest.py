"""Contestants measured in turn: in each round all get new processes, and then run in alternating blocks.

It uses the sweep's workers, subjects, frames and records (`twinlink_measure`).  A sweep gives each subject one turn per
round; here the turns are short and many, so that changes of the machine's speed affect all contestants equally.
"""

import os
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self

from twinlink_measure.cell_run import CellRun, RoundResult
from twinlink_measure.cells import Plan
from twinlink_measure.setting import Pair, Setting
from twinlink_measure.worker_handle import Interrupted, Stopped, WorkerFailed, WorkerLost

from twinlink.errors import TwinlinkError

OPEN_S = 30.0
TIMEOUT_S = 30.0  # for the peer, and for an answer, on a busy machine
WARM_UP = 50  # messages before each block
STARTED_AT_ONCE = 2

FAILURES = (WorkerLost, WorkerFailed, TwinlinkError, OSError)


@dataclass(frozen=True)
class Contestant:
    """A subject of the sweep (`twinlink_measure.channels`) with its own name and options."""

    name: str
    subject: str
    options: dict[str, Any] = field(default_factory=dict, hash=False)


def plain(*subjects: str) -> list[Contestant]:
    """Subjects under their own names."""
    return [Contestant(subject, subject) for subject in subjects]


def _part(pair: Pair) -> None:
    """Keep the sides on processors of their own, where there are two.

    Otherwise a plain loop may run on one of them, and wake no processor, while a program of several threads cannot.
    """
    allowed = sorted(os.sched_getaffinity(0))
    sides = pair.real_world.pid, pair.digital_twin.pid
    if len(allowed) > 1:
        for pid, processor in zip(sides, allowed, strict=False):
            if pid is not None:
                os.sched_setaffinity(pid, {processor})


class Round:
    """All contestants with their processes; a context manager.

    Attributes:
        pairs: workers of the contestants that could be opened, by name.
        lost: why the others, including later failures, are out of this round.
    """

    def __init__(self, contestants: Sequence[Contestant], setting: Setting, stopped: Stopped, seed: int) -> None:
        self._contestants = contestants
        self._setting = setting
        self._stopped = stopped
        self._order = random.Random(seed)
        self.pairs: dict[str, Pair] = {}
        self.lost: dict[str, str] = {}

    def __enter__(self) -> Self:
        if self._stopped():
            raise Interrupted
        try:
            for contestant in self._contestants:
                self.pairs[contestant.name] = pair = self._setting.start()
                _part(pair)
            with ThreadPoolExecutor(STARTED_AT_ONCE) as pool:
                opening = [(one.name, pool.submit(self._open, one)) for one in self._contestants]
            for name, done in opening:
                try:
                    done.result()
                except FAILURES as error:
                    self.fail(name, error)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(Pair.end, self.pairs.values()))
        self.pairs.clear()

    def _open(self, contestant: Contestant) -> None:
        drop_every = self._setting.truth.drop_every
        self.pairs[contestant.name].open(contestant.subject, contestant.options, drop_every, OPEN_S, self._stopped)

    def fail(self, name: str, error: Exception | str) -> None:
        """Remove a contestant from this round."""
        self.lost.setdefault(name, f"{name}: {error}")
        pair = self.pairs.pop(name, None)
        if pair is not None:
            pair.end()

    def shuffled(self, names: Sequence[str]) -> list[str]:
        """The remaining contestants, in random order."""
        present = [name for name in names if name in self.pairs]
        return self._order.sample(present, len(present))

    def take(
        self,
        name: str,
        octets: int,
        count: int,
        *,
        closed: bool = True,
        rate_hz: float | None = None,
        direction: str = "rw-dt",
    ) -> RoundResult | None:
        """A block of one contestant; None if it failed, which ends the round for it.

        ``closed``: each message leaves when the one before was answered.  Otherwise they leave at ``rate_hz``, or
        unpaced if that is None, and the raw subjects answer many at once, as a link does.
        """
        cell = {"octets": octets, "mode": "closed" if closed else "saturation", "direction": direction, "search": None}
        plan = Plan((name,), (octets,), warm_up=WARM_UP, timeout_s=TIMEOUT_S)
        try:
            block = CellRun(plan, self.pairs[name], cell, 0, self._setting.counts_wire)
            block.warm_up(self._stopped, 0.0)
            taken = block.trial(count, rate_hz, self._stopped)
        except FAILURES as error:
            self.fail(name, error)
            return None
        if taken.status == "interrupted":
            raise Interrupted
        if taken.status != "done":
            self.fail(name, taken.reason or taken.status)
            return None
        return taken
