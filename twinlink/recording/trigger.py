"""A recording that is triggered: the last seconds stay in memory until an event, message or command has them written.

What has become too old by then is counted on, so that the file begins where the flows stood at its oldest message.
"""

import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from math import inf
from typing import TYPE_CHECKING

from .. import events
from ..control import PrbBlock, PrbBlockResult
from ..errors import ConfigurationError, MalformedPayload
from ..protocol.frames import FLOW_NAME, HEADER_OCTETS, MalformedFrame
from ..protocol.wire import messages_of
from ..runtime.capture import MESSAGE_WORDS, EventItem, FrameItem, Item, octets_of
from ..signed_payload import HEAD_OCTETS, MAGIC
from ..spelling import near

if TYPE_CHECKING:
    from .series import Series

AGAIN_S = 1.0  # a condition that is met on and on is recorded so often; so is a file tried that cannot be begun
FORGET_S = 10.0  # how often what came before the recording is summed up
INTERFERER, FLOW = "interferer", "flow:"
EVENTS = {
    re.sub("(?<=.)(?=[A-Z])", "-", name).lower(): kind
    for name, kind in vars(events).items()
    if isinstance(kind, type) and issubclass(kind, events.Event) and kind is not events.Event
}


def check(on: Iterable[str]) -> None:
    """Raises ConfigurationError for what is no condition."""
    for text in on:
        if text.startswith(FLOW):
            if not FLOW_NAME.fullmatch(text.removeprefix(FLOW)):
                raise ConfigurationError(f"{text!r}: no flow has this name")
        elif text != INTERFERER and text not in EVENTS:
            known = [*EVENTS, INTERFERER]
            raise ConfigurationError(
                f"nothing is called {text!r}{near(text, known)}; a recording is triggered by {FLOW}NAME, a message on "
                f"a flow, or {', '.join(known)}"
            )


class Conditions:
    """What triggers a recording, as `check` lets it pass."""

    def __init__(self, on: Iterable[str]) -> None:
        self._events = {EVENTS[text]: text for text in on if text in EVENTS}
        self._topics = {b"traffic/" + text.removeprefix(FLOW).encode(): text for text in on if text.startswith(FLOW)}
        self._blocks = {b"traffic/control": _asks, b"traffic/control-result": _installed} if INTERFERER in on else {}

    def met(self, item: Item) -> str | None:
        """The condition that it meets."""
        if isinstance(item, EventItem):
            return self._events.get(type(item.event))
        if not isinstance(item, FrameItem) or not (item.topic in self._topics or item.topic in self._blocks):
            return None
        if bytes(item.frame[:4]) not in MESSAGE_WORDS:
            return None
        shows_block = self._blocks.get(item.topic)
        if shows_block is not None and any(map(shows_block, _payloads(item))):
            return INTERFERER
        return self._topics.get(item.topic)


def _payloads(item: FrameItem) -> Iterator[memoryview]:
    """The payloads of a frame; of a signed one what was signed, which is not verified here."""
    try:
        for wire in messages_of(item.frame):
            payload = memoryview(wire.frame)[HEADER_OCTETS:]
            yield payload[HEAD_OCTETS:] if payload[: len(MAGIC)] == MAGIC else payload
    except MalformedFrame:
        return


def _asks(payload: memoryview) -> bool:
    """Whether a twin wants PRBs blocked, which it wants where it has found an interferer."""
    try:
        return bool(PrbBlock.decode(payload).prbs)
    except MalformedPayload:
        return False


def _installed(payload: memoryview) -> bool:
    """Whether a block stands."""
    try:
        result = PrbBlockResult.decode(payload)
    except MalformedPayload:
        return False
    return result.status == "installed" and bool(result.prbs)


class Trigger:
    """Between the queue and the files: keeps the newest items, and passes them on when something has happened.

    Attributes:
        reason: of the trigger that began the last file; None: there was none.
    """

    def __init__(
        self, series: "Series", on: Iterable[str], before_s: float, after_s: float | None, octets: int
    ) -> None:
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
