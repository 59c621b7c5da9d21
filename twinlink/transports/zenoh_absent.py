"""Placeholders of a Zenoh session, its publishers and its subscriber, until a router answers.

In mode client, `zenoh.open` succeeds only when it has connected.
"""

import contextlib
import threading
from typing import Any

import zenoh


class AbsentSession:
    """A session without a connection, and its publisher: messages are dropped, as without a peer."""

    def declare_publisher(self, *_: object, **__: object) -> "AbsentSession":
        return self

    def put(self, *_: object, **__: object) -> None:
        """As `zenoh.Session.put` and `zenoh.Publisher.put`."""

    def close(self) -> None:
        """As `zenoh.Session.close`."""


class AbsentSubscriber:
    """A subscriber that gets wake-ups only, and is their publisher."""

    def __init__(self, longest_s: float) -> None:
        """``longest_s``: time-out of `recv`, because the thread that wakes it may be connecting."""
        self._longest_s = longest_s
        self._woken = threading.Event()

    def put(self, _: bytes) -> None:
        """Wake a blocked `recv`."""
        self._woken.set()

    def try_recv(self) -> Any:
        return None

    def recv(self) -> Any:
        """As `zenoh.Subscriber.recv`; None at a wake-up."""
        if self._woken.wait(self._longest_s):
            self._woken.clear()
        return None


def close_session(session: "zenoh.Session | AbsentSession") -> None:
    """Close it.  After ten seconds Zenoh 1.10 gives up; what is left then ends with the process."""
    with contextlib.suppress(zenoh.ZError):
        session.close()
