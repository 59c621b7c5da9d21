"""Connectors over ZeroMQ that have connected and do not receive messages yet, as their JOINING topics say.

Any program may subscribe to such a topic, also to another node's: neither may keep that node out, nor stop the data.
"""

import math
import time

JOINING = b"joining/"
JOINED_S = 0.02  # how long data are held after a JOINING subscription ended, until that node's hello
HOLD_EVERY_S = 100 * JOINED_S  # at most
# A node that confirms our hello has changed its subscriptions before.  If its JOINING topic stays subscribed for this
# time, so that TCP would have repeated a lost packet, another program has subscribed to it.
JOINS_WITHIN_S = 1.0
ANEW_S = 10.0  # after this time, a node joins once more
TIMED = 256  # nodes


class Joining:
    """The JOINING topics that are subscribed, and the nodes among them that say hello."""

    def __init__(self) -> None:
        self.topics: set[bytes] = set()
        self.held_until = 0.0  # monotonic; data are held
        self._held_last = -HOLD_EVERY_S
        self._joins_by: dict[bytes, float] = {}  # for each node that says hello

    def ended(self, topic: bytes) -> None:
        """A subscription to one of the topics has ended: hold data until that node's hello, if it has said one."""
        self.topics.remove(topic)
        now = time.monotonic()
        if topic in self._joins_by and now - self._held_last > HOLD_EVERY_S:
            self._held_last, self.held_until = now, now + JOINED_S

    def is_held(self) -> bool:
        if time.monotonic() >= self.held_until:
            self.held_until = 0.0
        return self.held_until > 0

    def goes_on(self, topic: bytes, hears_us: bool) -> bool:
        """Whether the node of this topic, which has said hello, has not joined yet."""
        if topic not in self.topics:
            self._joins_by.pop(topic, None)
            return False
        now = time.monotonic()
        by = self._joins_by.get(topic, math.inf)
        if by == math.inf or now > by + ANEW_S:
            by = now + JOINS_WITHIN_S if hears_us else math.inf
            self._joins_by[topic] = by
            if len(self._joins_by) > TIMED:
                del self._joins_by[next(iter(self._joins_by))]
        return now < by
