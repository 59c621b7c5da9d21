"""The publishers of a Zenoh session, by topic."""

import threading
from typing import cast

import zenoh

from ..protocol.frames import HELLO_TOPIC
from .zenoh_absent import AbsentSession

MAX_PUBLISHERS = 8192  # far more than a link has flows


class ZenohPublishers:
    """The publishers of one transport, which changes its session now and then.

    Args:
        prefix: of every key.

    Attributes:
        made: those of the session and the congestion control in use, for a look-up without a lock.
    """

    def __init__(self, prefix: str) -> None:
        self.made: dict[bytes, zenoh.Publisher] = {}
        self._others: dict[bytes, zenoh.Publisher] = {}  # those of the other congestion control
        self._prefix = prefix
        self._drops = False
        self._preferred: set[bytes] = set()
        self._session = cast(zenoh.Session, AbsentSession())
        self._lock = threading.Lock()

    def use(self, session: zenoh.Session) -> None:
        """Publish on this session from now on."""
        with self._lock:
            self._session = session
            self.made, self._others = {}, {}

    def let_drop(self, drops: bool) -> None:
        """Set whether data are dropped for a peer that does not take them for a moment; else `put` waits for it.

        A peer that stops reading must not delay the others.  Repair delivers what was dropped.
        """
        with self._lock:
            if drops != self._drops:
                self._drops = drops
                self.made, self._others = self._others, self.made

    def prefer(self, topic: bytes) -> None:
        """Give this topic the priority of acks."""
        self._preferred.add(topic)

    def declare(self, topic: bytes) -> zenoh.Publisher:
        """The publisher of a topic.  Raises zenoh.ZError."""
        with self._lock:
            if topic not in self.made:
                if len(self.made) >= MAX_PUBLISHERS:  # a foreign program may name any number of flows
                    oldest = next(iter(self.made))
                    self.made.pop(oldest).undeclare()  # type: ignore[no-untyped-call]
                control = zenoh.CongestionControl
                data = topic.startswith(b"traffic/") and topic != HELLO_TOPIC
                self.made[topic] = self._session.declare_publisher(
                    self._prefix + topic.decode(),
                    reliability=zenoh.Reliability.RELIABLE,
                    # The receiving thread must not wait for a peer that reads nothing.
                    congestion_control=control.BLOCK if data and not self._drops else control.DROP,
                    priority=zenoh.Priority.DATA
                    if data and topic not in self._preferred
                    else zenoh.Priority.INTERACTIVE_HIGH,
                    express=False,  # a message alone in a batch occupies 64 KiB at the receiver, and is no quicker
                    allowed_destination=zenoh.Locality.REMOTE,  # our own subscriber matches the key expression too
                )
            return self.made[topic]

    def offer(self, topic: bytes, frame: bytes | zenoh.ZBytes) -> None:
        """Put a frame without a publisher, and without waiting for room.  Raises zenoh.ZError."""
        self._session.put(
            self._prefix + topic.decode(),
            frame,
            congestion_control=zenoh.CongestionControl.DROP,
            priority=zenoh.Priority.INTERACTIVE_HIGH if topic in self._preferred else zenoh.Priority.DATA,
            allowed_destination=zenoh.Locality.REMOTE,
        )

    def drop_all(self) -> None:
        """Forget the publishers: Zenoh 1.10 leaks 20 KB of a session that still has one when it is closed."""
        with self._lock:
            publishers, self.made, self._others = [*self.made.values(), *self._others.values()], {}, {}
        publishers.clear()  # outside the lock, for which a sending thread may wait
