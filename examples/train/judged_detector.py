"""The detector of a twin whose policy is a model: the rule runs beside it, and `Probation` says which one decides."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from twinlink_replay.detection.detector import Detector, Filtered, Smoothed
from twinlink_replay.detection.features import PrbFeatures

from .features import LOUD
from .labelled import CLASSES
from .model_process import CLASS, INTERFERED, ModelFailed, ModelProcess
from .probation import Change, Probation

REPLAY_LIMIT_S = 60.0  # without an answer within that, the process is taken to hang
Mask = NDArray[np.bool_]
T = TypeVar("T")


class Policy:
    """A model on probation: one for a twin, whatever detectors it makes.

    Args:
        process: of the model.
        limit_s: for its answer to the records that came together.
        live_after: records in shadow before it decides; None: it stays in shadow.
        low: whether the twin's picture is not that of the network.
        tell: is given each change of stage.
        replayed: whether the records are those of a replay.  Its answers are the same at every pace and each time: the
            model has as long as it needs, and is on a probation of its own.

    Attributes:
        probation: None before the first record.
        kinds: PRBs of records that the model reported, by class.
    """

    def __init__(
        self,
        process: ModelProcess,
        limit_s: float,
        live_after: int | None,
        low: Callable[[], bool],
        tell: Callable[[Change], object],
        replayed: Callable[[], bool] = lambda: False,
    ) -> None:
        self.probation: Probation | None = None
        self._live: Probation | None = None  # that of records that are no replay
        self.kinds = Counter[str]()
        self._process, self._limit_s, self._live_after = process, limit_s, live_after
        self._low, self._tell, self._replayed = low, tell, replayed
        self._failed = False

    def make_detector(self, n_prbs: int) -> "JudgedDetector":
        """The detector of records with so many PRBs, from now on."""
        fresh = Probation(n_prbs, self._live_after)
        if self._replayed():
            self.probation = fresh
        else:
            self.probation = self._live = self._live or fresh
        self.probation.begin_anew(n_prbs)
        if self._failed:
            self.probation.roll_back("ended", "the process of the model has ended before")
        self._guarded(self._process.begin)
        return JudgedDetector(n_prbs, self)

    def ask(self, samples: NDArray[np.int16]) -> tuple[int | None, float]:
        """Ask the model; the number of the request, None if it was not asked, and when its time ends."""
        stands = self.probation is not None and self.probation.stage != "rolled back"
        number = self._guarded(lambda: self._process.ask(samples)) if stands else None
        return number, time.monotonic() + (REPLAY_LIMIT_S if self._replayed() else self._limit_s)

    def decide(self, asked: tuple[int | None, float], rule: Mask, loud: Mask) -> Mask:
        """The answers in force, shape ``(records, n_prbs)``, beside those of the rule."""
        assert self.probation is not None
        number, deadline_s = asked
        octets = None if number is None else self._guarded(lambda: self._answer(number, deadline_s))
        model = None if octets is None else (octets & INTERFERED) > 0
        if octets is not None and model is not None:
            seen = np.bincount((octets[model] & CLASS).astype(np.int64), minlength=len(CLASSES))
            self.kinds.update(dict(zip(CLASSES, seen.tolist(), strict=False)))
        if self._low():
            self.probation.roll_back("fidelity", "the twin's picture is not that of the network (event fidelity-low)")
        rows = [
            self.probation.add(rule[k], None if model is None else model[k], loud[k]) for k in range(len(rule))
        ]  # fmt: skip
        self._report()
        return np.stack(rows)

    def judge(self, smoothed: list[Smoothed]) -> None:
        """Take in smoothed answers."""
        assert self.probation is not None
        for part in smoothed:
            self.probation.judge(part.interfered)
        self._report()

    def _answer(self, number: int, deadline_s: float) -> NDArray[np.uint8] | None:
        octets = self._process.answer(number, deadline_s)
        if octets is None and self._replayed():
            raise ModelFailed(f"the process of the model did not answer within {REPLAY_LIMIT_S:g} s")
        return octets

    def _guarded(self, call: Callable[[], T]) -> T | None:
        """The result; None where the process has failed, now or before."""
        if self._failed:
            return None
        try:
            return call()
        except ModelFailed as error:
            self._failed = True
            if self.probation is not None:
                self.probation.roll_back("ended", str(error))
            return None

    def _report(self) -> None:
        for change in self.probation.changes() if self.probation is not None else ():
            self._tell(change)


class JudgedDetector(Detector):
    """The rule, whose filtered answer is that of the policy where the model decides; the smoothed one is the rule's."""

    def __init__(self, n_prbs: int, policy: Policy) -> None:
        super().__init__(n_prbs)
        self._policy = policy

    def add(self, features: PrbFeatures) -> Filtered:
        """As of `Detector`."""
        assert features.samples is not None  # the twin has them of what it gives to a detector
        asked = self._policy.ask(features.samples)  # the model runs beside the rule
        answer = super().add(features)
        loud = features.power > np.exp(LOUD) * (self.floor or 0.0)
        interfered = self._policy.decide(asked, answer.interfered, loud)
        # What the rule takes for a UE, and the model for an interferer, is none that a block has left there.
        return replace(answer, interfered=interfered, ue=answer.ue & ~(interfered & ~answer.interfered))

    def smoothed(self) -> list[Smoothed]:
        """As of `Detector`."""
        final = super().smoothed()
        self._policy.judge(final)
        return final
