"""What the senders of a link need to know of it."""

from collections.abc import Callable
from dataclasses import dataclass

from .driver import SessionDriver


@dataclass(slots=True)
class LinkState:
    """The state of one link that its senders share.

    Attributes:
        endpoint, max_payload, send_timeout: as the link was opened; the time in s.
        driver: has the session.
        wait: returns when ``done()`` holds, after ``timeout`` seconds, or when the link closes.
        wake_transmit: messages wait in a queue: have them transmitted.
        in_callback: whether the calling thread is inside a handler of this link.
        closed: the link was closed.
        describe: how the link was opened, and its peers, for a person.
        closing: from now on nothing may be sent.
        closed_because: what `LinkClosed` says of the link.
    """

    endpoint: str
    max_payload: int
    send_timeout: float
    driver: SessionDriver
    wait: Callable[[Callable[[], object], float | None], None]
    wake_transmit: Callable[[], None]
    in_callback: Callable[[], bool]
    closed: Callable[[], bool]
    describe: Callable[[], str]
    closing: bool = False
    closed_because: str = "is closed"
