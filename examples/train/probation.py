"""Whether a model decides: in shadow beside the rule, then live, and back to the rule by itself.  No I/O, no clock.

```
shadow ---live_after records, and none of these---> live ---one of these---> rolled back
   |                                                                              ^
   +--------------------------------one of these----------------------------------+
```

| reason     | is                                                                                                  |
|------------|-----------------------------------------------------------------------------------------------------|
| `ended`    | the process of the model has ended                                                                  |
| `late`     | of the last `WINDOW` records, more than `MOST_LATE` had no answer in time                           |
| `size`     | the model reports more than `MOST_PRBS` of the carrier for `SIZE_RECORDS` records on end            |
| `wrong`    | where the two differ, the smoothed answer, which knows 2 to 4 s more, has contradicted the model    |
|            | oftener than the rule, by more than `MOST_WRONG` PRBs of each of the last `JUDGED` records           |
| `withheld` | the model keeps PRBs that are quiet: in the mean of the last `WINDOW` records, more than             |
|            | `MOST_WITHHELD` of the carrier beyond what the rule keeps.  Where a block is on air the UEs have left |
|            | it, so what is quiet has no interferer either: capacity is withheld for nothing                     |
| `fidelity` | the twin's picture is not that of the network (docs/fidelity.md)                                    |

In shadow, and once it is rolled back, the rule decides; also for each record for which the model has no answer.  In
shadow `late` and `fidelity` say nothing of the model: the time in shadow begins anew.
"""

from collections import Counter, deque
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

WINDOW = 100  # records
MOST_LATE = 10
MOST_PRBS, SIZE_RECORDS = 0.5, 5
JUDGED, LEAST_JUDGED = 1000, 200
MOST_WRONG = 0.5
MOST_WITHHELD = 0.05
HOLD = 40  # records for which the controller keeps a PRB, of 10 ms each

ANEW = "late", "fidelity"  # reasons that begin the time in shadow anew

Stage = Literal["shadow", "live", "rolled back"]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Change:
    """The stage has changed; ``reason`` is one of the table, or empty; ``was_live``: the model had decided."""

    stage: Stage
    reason: str
    text: str
    was_live: bool = False


class Probation:
    """Of one model.

    Args:
        n_prbs: PRBs of a record.
        live_after: records in shadow before the model decides; None: it stays in shadow.

    Attributes:
        stage: who decides.
        counts: `records`, `answered`, `late`, `live_records`; PRBs of records on which `both`, the model alone
            (`model`), or the rule alone (`rule`) have reported interference; `judged` PRBs on which they differ, by the
            smoothed answer, and of these `model_wrong` and `rule_wrong`; `shadow_anew`, how often the time in shadow
            began anew.
    """

    def __init__(self, n_prbs: int, live_after: int | None) -> None:
        self.stage: Stage = "shadow"
        self.counts = Counter[str]()
        self._n_prbs, self._live_after = n_prbs, live_after
        self._answered = deque[bool](maxlen=WINDOW)
        self._withheld = deque[float](maxlen=WINDOW)
        self._wrong = deque[int](maxlen=JUDGED)
        self._large = self._shadowed = 0
        self._since = np.full((2, n_prbs), HOLD, np.int64)  # records since the model, and the rule, reported a PRB
        self._differ = deque[tuple[Mask, Mask]]()  # answers that the smoothed one is still to judge
        self._changes = list[Change]()

    def changes(self) -> list[Change]:
        """The changes since the last call."""
        done, self._changes = self._changes, []
        return done

    def add(self, rule: Mask, model: Mask | None, loud: Mask) -> Mask:
        """The answer in force for a record.

        Args:
            rule, model: answers of both, shape ``(n_prbs,)``; None: the model had none in time.
            loud: whether the PRB's power is above the noise floor's spread, same shape.
        """
        self.counts["records"] += 1
        self._answered.append(model is not None)
        if self.stage == "rolled back":
            return rule
        if model is None:
            self.counts["late"] += 1
            if (late := self._answered.count(False)) > MOST_LATE:
                self.roll_back("late", f"{late} of {len(self._answered)} records had no answer in time")
        else:
            self._compare(rule, model, loud)
        self._differ.append((rule, rule if model is None else model))
        self._shadowed += 1
        if self.stage == "shadow" and self._live_after is not None and self._shadowed > self._live_after:
            self.stage = "live"
            self._changes.append(Change("live", "", self._so_far()))
        if self.stage != "live" or model is None:
            return rule
        self.counts["live_records"] += 1
        return model

    def judge(self, smoothed: Mask) -> None:
        """Take in the smoothed answer of the next records that it has not had, shape ``(records, n_prbs)``."""
        for truth in smoothed:
            if not self._differ:
                return  # of a time before this probation
            rule, model = self._differ.popleft()
            differ = rule ^ model
            model_wrong = int((differ & (model ^ truth)).sum())
            rule_wrong = int(differ.sum()) - model_wrong
            self.counts.update(judged=model_wrong + rule_wrong, model_wrong=model_wrong, rule_wrong=rule_wrong)
            self._wrong.append(model_wrong - rule_wrong)
        if len(self._wrong) >= LEAST_JUDGED and (mean := sum(self._wrong) / len(self._wrong)) > MOST_WRONG:
            text = f"the smoothed answer has contradicted it on {mean:.1f} PRBs a record more than the rule"
            self.roll_back("wrong", text)

    def roll_back(self, reason: str, text: str) -> None:
        """The rule decides from now on, for a reason of the table."""
        if self.stage == "shadow" and reason in ANEW:
            self.counts["shadow_anew"] += self._shadowed > 0
            self._shadowed = 0
            self._answered.clear()
        elif self.stage != "rolled back":
            was_live, self.stage = self.stage == "live", "rolled back"
            self._changes.append(Change("rolled back", reason, text, was_live))

    def begin_anew(self, n_prbs: int) -> None:
        """The detector begins anew, or its records do, which have so many PRBs: what was to be judged is not."""
        self._differ.clear()
        self._n_prbs = n_prbs
        self._since = np.full((2, n_prbs), HOLD, np.int64)

    def _compare(self, rule: Mask, model: Mask, loud: Mask) -> None:
        both, either = int((rule & model).sum()), int((rule | model).sum())
        alone = int(model.sum()) - both
        self.counts.update(answered=1, both=both, model=alone, rule=either - both - alone)
        self._large = self._large + 1 if model.mean() > MOST_PRBS else 0
        if self._large >= SIZE_RECORDS:
            self.roll_back("size", f"it reports {int(model.sum())} of {self._n_prbs} PRBs")
        self._since += 1
        self._since[0, model] = self._since[1, rule] = 0
        held = (self._since < HOLD) & ~loud
        self._withheld.append(float(held[0].sum() - held[1].sum()) / self._n_prbs)
        share = sum(self._withheld) / WINDOW
        if share > MOST_WITHHELD:
            text = f"{share * self._n_prbs:.1f} PRBs more than by the rule are kept from UEs, and quiet"
            self.roll_back("withheld", text)

    def _so_far(self) -> str:
        seen = self.counts
        return (
            f"{self._shadowed - 1} records in shadow: both reported {seen['both']} PRBs, the model alone "
            f"{seen['model']}, the rule alone {seen['rule']}; of {seen['judged']} judged, the model was wrong in "
            f"{seen['model_wrong']}, the rule in {seen['rule_wrong']}"
        )
