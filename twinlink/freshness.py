"""How old what arrives is: what is too old is not delivered, and a change of a flow's state is reported."""

import time
from collections.abc import Callable

from . import events as ev
from .events import Event
from .incoming import Incoming, Stream
from .message import Message
from .sync import State

_monotonic_ns, _time_ns = time.monotonic_ns, time.time_ns


class Freshness:
    """For flows of which somebody watches the age, or gave it a limit."""

    def __init__(self, report: Callable[[Event], None]) -> None:
        self._report = report

    def admits(self, incoming: Incoming, stream: Stream, message: Message) -> bool:
        """Whether it is to be delivered."""
        now, sync = _time_ns(), incoming.sync
        if incoming.max_age_ns is not None and now - message.sent_ns > incoming.max_age_ns:
            incoming.drop_stale(stream, message)
            if sync is not None:
                sync.missed(1, _monotonic_ns())
            return False
        if sync is not None:
            sync.arrived(message.sequence, message.sent_ns, now, _monotonic_ns(), stream.epoch)
            if sync.state is not State.IN_SYNC:
                self.look(incoming)
        return True

    def look(self, incoming: Incoming) -> None:
        """Report what is new about the age of a flow."""
        sync = incoming.sync
        if sync is not None and (state := sync.look(_monotonic_ns())) is not None:
            now = _time_ns()
            self._report(ev.SyncChanged(now, incoming.flow, state.value, sync.age_ns(), sync.completeness()))
        for epoch, first, end in incoming.stale.take():
            self._report(ev.Stale(_time_ns(), incoming.flow, epoch, first, end))
