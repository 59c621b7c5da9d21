"""A listener and its peer, for tests of what foreign programs may not take from them."""

import contextlib
from collections.abc import Iterator
from typing import Any

import twinlink
from twinlink.testing import patience
from twinlink.transport_options import TransportName


@contextlib.contextmanager
def pair(transport: TransportName, endpoint: str, **options: Any) -> Iterator[tuple[twinlink.Link, twinlink.Link]]:
    """A listener with these options, and its peer."""
    with (
        twinlink.open(transport, listen=endpoint, node="listener", **options) as listener,
        twinlink.open(transport, connect=endpoint, node="peer") as peer,
    ):
        for link in (listener, peer):
            link.wait_ready(patience())
        yield listener, peer


def ended(link: twinlink.Link, option: str) -> int:
    """Connections that the listener ended for this limit."""
    return link.stats()["limits_exceeded"].get(option, 0)


def deliver(listener: twinlink.Link, peer: twinlink.Link, payload: bytes = b"", count: int = 100) -> None:
    """Messages to the peer, of which none is lost."""
    sender, receiver = listener.sender("down"), peer.receiver("down")
    first = sender.send(payload)
    for _ in range(count - 1):
        sender.send(payload)
    sender.flush(patience())
    for sequence in range(first, first + count):
        message = receiver.receive(timeout=patience())
        assert message is not None
        assert message.sequence == sequence
