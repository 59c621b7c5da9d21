"""What triggers a recording: events, messages on a flow, and an interferer that a twin has found."""

import re
from collections.abc import Iterable, Iterator

from .. import events
from ..block_state import FLOW as BLOCK_STATE
from ..block_state import desired_of
from ..control import PrbBlock, PrbBlockResult
from ..errors import ConfigurationError, MalformedPayload
from ..protocol.frames import FLOW_NAME, HEADER_OCTETS, MalformedFrame
from ..protocol.wire import messages_of
from ..runtime.capture import MESSAGE_WORDS, EventItem, FrameItem, Item
from ..signed_payload import body_of
from ..spelling import near

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
        self._blocks = _BLOCKS if INTERFERER in on else {}

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


def _desires(payload: memoryview) -> bool:
    """The same of a twin that asks in the state."""
    return any(desired.block.prbs for desired in desired_of(payload))


def _payloads(item: FrameItem) -> Iterator[memoryview]:
    """The payloads of a frame; of a signed one what was signed, which is not verified here."""
    try:
        for wire in messages_of(item.frame):
            yield memoryview(body_of(memoryview(wire.frame)[HEADER_OCTETS:]))
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


_BLOCKS = {
    b"traffic/control": _asks,
    f"traffic/{BLOCK_STATE}".encode(): _desires,
    b"traffic/control-result": _installed,
}
