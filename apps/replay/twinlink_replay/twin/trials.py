"""The twin before the air: each block that is to be asked of the gNB is tried in the model of the cell first."""

import time
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlink.appkit.journal import Journal
from twinlink.control import PrbBlock
from twinlink.prbs import format_prbs
from twinlink.story import Tried

from ..blocks.observer import Record
from ..trial.cell import Cell, Emitter, fit, usual
from ..trial.futures import prepare
from ..trial.heard import STEP_MS, Heard
from ..trial.policy import Policy, Span
from ..trial.trying import SEEDS, Outcome, Rule, as_dict, try_with_part
from .controller import HOLD_NS, MS

POLICY = "block"  # the name of what is wanted
HORIZON_MS = 2000  # beyond it the cell has forgotten how it was, and a block is tried again when it is renewed
ON_AIR_MS = STEP_MS  # from a decision to the gNB
RECENT = 300  # steps that show the state of the cell now; its laws are those that the runs ahead were made by
FIT_CALLS = 50  # calls of `run_ahead` after which the runs ahead are made to suit what was heard since
# The call of `run_ahead` with a trial whose answer does not count: it makes what the first one that counts would make.
# By then what came while `follow` made its runs is analysed, and there is no model yet.
REHEARSAL = 5


class Trials:
    """`add`, `run_ahead`, `follow` and `leaving` are called by one thread.

    Args:
        journal: receives the events.
        enabled: False to let all blocks leave untried.

    Attributes:
        tried: number of trials.
        refused: number of blocks that did not leave, by rule.
        total_ns, most_ns: length of all trials, and of the longest.
        last: what the model answered last; None before it.
    """

    def __init__(self, journal: Journal, enabled: bool) -> None:
        self.tried = self.total_ns = self.most_ns = 0
        self.refused: Counter[Rule] = Counter()
        self.last: Tried | None = None
        self._journal, self._enabled = journal, enabled
        self._heard: Heard | None = None
        self._first_prb = 0
        self._blocked: NDArray[np.bool_] | None = None
        self._calls = 0
        self._ahead: Cell | None = None  # whose runs are being made
        self._calls_left = 0  # after which they are made
        self._ready = usual(1)  # whose runs are made
        self._last_logged: tuple[str, tuple[int, ...], str | None] | None = None

    def follow(self, n_prbs: int, first_prb: int) -> None:
        """Records of these PRBs follow, of which nothing was heard yet."""
        self._heard = Heard(n_prbs) if self._enabled else None
        self._first_prb, self._blocked = first_prb, np.zeros(n_prbs, np.bool_)
        self._ready, self._ahead, self._calls = usual(n_prbs), None, 0
        while self._enabled and prepare(self._ready, HORIZON_MS // STEP_MS, SEEDS):
            pass

    def on_air(self, prbs: tuple[int, ...]) -> None:
        """These PRBs are blocked from now on; called by any thread."""
        if self._blocked is not None:
            self._blocked = np.isin(np.arange(len(self._blocked)), self._local(prbs))  # it may be of other PRBs, too

    def add(self, records: list[Record], occupied: NDArray[np.bool_], interfered: NDArray[np.bool_]) -> None:
        """Take in records with the answers about them, both of shape ``(records, n_prbs)``."""
        if self._heard is None or self._blocked is None:
            return
        for k, record in enumerate(records):
            self._heard.add(record.observed_ns, occupied[k], interfered[k], self._blocked)

    def run_ahead(self) -> None:
        """Make one of the runs that later trials need; call it after the decision on each record or batch."""
        if self._heard is None:
            return
        self._calls += 1
        if self._calls == REHEARSAL:
            cell = replace(self._ready, emitters=(Emitter(0, 1, 0),), silence=0)
            try_with_part(cell, Policy(POLICY, (Span(ON_AIR_MS, HORIZON_MS, (0,), HOLD_NS // MS),)), HORIZON_MS / 1000)
        if self._ahead is None and self._calls % FIT_CALLS == 0:
            self._ahead, self._calls_left = fit(self._heard), SEEDS
        if self._ahead:
            # One run a call, so that no record waits for many.  Those that were made before, as for an earlier replay,
            # change nothing of when it is ready: a replay gets the same answers each time.
            prepare(self._ahead, HORIZON_MS // STEP_MS, SEEDS)
            self._calls_left -= 1
            if not self._calls_left:
                self._ready, self._ahead = self._ahead, None

    def leaving(self, block: PrbBlock) -> PrbBlock | None:
        """The block, or the part of it that may leave; None if no part may.  An empty list may: it ends a block."""
        if self._heard is None or not block.prbs:
            return block
        begun_ns = time.monotonic_ns()
        cell, ready = fit(self._heard, RECENT), self._ready
        if cell:
            cell = replace(cell, load=ready.load, dwell_steps=ready.dwell_steps, stays=ready.stays)
        end_ms = min(max(block.validity_ms, ON_AIR_MS + STEP_MS), HORIZON_MS)
        span = Span(ON_AIR_MS, end_ms, tuple(self._local(block.prbs)), HOLD_NS // MS)
        tried = try_with_part(cell, Policy(POLICY, (span,)), HORIZON_MS / 1000)
        outcome = tried.outcomes[0] if tried.best is tried.nothing else tried.best
        if outcome.refusal is None:
            (span,) = outcome.policy.spans
            block = replace(block, prbs=tuple(prb + self._first_prb for prb in span.prbs))
        length_ns = time.monotonic_ns() - begun_ns
        self.tried += 1
        self.total_ns += length_ns
        self.most_ns = max(self.most_ns, length_ns)
        self._report(block, outcome, [one for one in tried.outcomes if one is not outcome], length_ns)
        return None if outcome.refusal else block

    def described(self) -> dict[str, Any]:
        """All of it, as plain data; None is not known."""
        mean_ns = self.total_ns // self.tried if self.tried else None
        return {"tried": self.tried, "refused": dict(self.refused), "mean_ns": mean_ns, "most_ns": self.most_ns or None}

    def _local(self, prbs: tuple[int, ...]) -> list[int]:
        return [prb - self._first_prb for prb in prbs]

    def _report(self, block: PrbBlock, outcome: Outcome, others: list[Outcome], length_ns: int) -> None:
        refusal, prbs = outcome.refusal, format_prbs(block.prbs)
        if refusal is None:
            gain = outcome.figures["gain"]
            reason = f"a gain of {gain.mean:.0f} PRB-ms ({gain.low:.0f} to {gain.high:.0f}) over doing nothing"
            part = "" if outcome.policy.name == POLICY else ", the part that gains of what is wanted,"
            text = f"tried a block of PRBs {prbs}{part} in {length_ns / MS:.1f} ms: {reason}"
        else:
            reason = str(refusal)
            self.refused[refusal.rule] += 1
            text = f"a block of PRBs {prbs} is not asked for, as the twin's model of the cell says: {reason}"
        self.last = Tried(time.time_ns(), "refused" if refusal else "accepted", reason)
        now = "block-refused" if refusal else "block-tried", block.prbs, refusal.rule if refusal else None
        log = self._journal.routine if now == self._last_logged else self._journal.event
        self._last_logged = now
        fields = as_dict(outcome) | {"horizon_ms": HORIZON_MS, "seeds": SEEDS, "length_ns": length_ns}
        del fields["spans"]
        fields["beside"] = [
            {
                name: value
                for name, value in as_dict(one).items()
                if name in ("policy", "leaves", "refusal", "gain_prb_ms")
            }
            for one in others
        ]
        log(now[0], text, time_ns=self.last.tried_ns, id=block.id, prbs=block.prbs, **fields)
