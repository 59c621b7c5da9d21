"""A recording that is triggered: the last seconds stay in memory until an event, message or command has them written.

What has become too old by then is counted on, so that the file begins where the flows stood at its oldest message.
"""

import time
from collections import deque
from collections.abc import Iterable
from math import inf

from ..runtime.capture import Item, octets_of
from .conditions import Conditions
from .series import Series

AGAIN_S = 1.0  # a condition that is met on and on is recorded so often; so is a file tried that cannot be begun
FORGET_S = 10.0  # how often what came before the recording is summed up


class Trigger:
    """Between the queue and the files: keeps the newest items, and passes them on when something has happened.

    Attributes:
        reason: of the trigger that began the last file; None: there was none.
    """

    def __init__(self, series: Series, on: Iterable[str], before_s: float, after_s: float | None, octets: int) -> None:
        """``octets``: kept at most, whatever their age."""
        self.reason: str | None = None
        self._series, self._conditions = series, Conditions(on)
        self._before_s, self._after_s, self._octets = before_s, inf if after_s is None else after_s, octets
        self._kept: deque[tuple[float, Item]] = deque()
        self._kept_octets = 0
        self._ends_s = self._forgets_s = 0.0
        self._failed_s = -inf
        self._met_s: dict[str, float] = {}

    def take(self, item: Item) -> None:
        """Take in an item."""
        now_s = time.monotonic()
        if self._series.is_open:
            self._series.take(item)
        else:
            self._kept.append((now_s, item))
            self._kept_octets += octets_of(item)
            self._let_go(now_s)
        condition = self._conditions.met(item)
        if condition is None:
            return
        self._ends_s = now_s + self._after_s
        last_s = self._met_s.get(condition, -inf) if self._series.is_open else self._failed_s
        if now_s - last_s >= AGAIN_S:
            self._met_s[condition] = now_s
            self.trigger(condition, time.time_ns())

    def _let_go(self, now_s: float) -> None:
        """What is too old, or too much, was before the recording."""
        kept = self._kept
        while kept and (kept[0][0] < now_s - self._before_s or self._kept_octets > self._octets):
            self._series.take(self._pop())

    def _pop(self) -> Item:
        item = self._kept.popleft()[1]
        self._kept_octets -= octets_of(item)
        return item

    def trigger(self, reason: str, time_ns: int) -> None:
        """Have the files get what is kept, and what follows."""
        now_s, before_s = time.monotonic(), None
        self._ends_s = now_s + self._after_s
        if not self._series.is_open:
            self._let_go(now_s)
            before_s = round(now_s - self._kept[0][0], 3) if self._kept else 0.0
            if not self._series.begin():
                self._failed_s = now_s
                return
            self.reason = reason
        self._series.trigger(reason, time_ns, before_s)
        while self._kept:
            self._series.take(self._pop())
            self._series.look()

    def look(self) -> None:
        """To be called often: what is due by the clock."""
        now_s = time.monotonic()
        if self._series.is_open:
            self._series.look()
            if now_s >= self._ends_s:
                self._series.end()
        else:
            self._let_go(now_s)
            if now_s >= self._forgets_s:
                self._forgets_s = now_s + FORGET_S
                self._series.forget()
