"""What a sender needs of its link."""

from collections.abc import Callable
from typing import Protocol


class PeerDirectory(Protocol):
    """The peers of a link, as far as a sender asks about them."""

    @property
    def alone(self) -> bool:
        """Whether no peer is known that is up or may return."""

    def names(self, epochs: frozenset[int]) -> str:
        """Names of these peers, for a person."""

    def smaller_limits(self, size: int) -> str:
        """The peers that do not take a payload of ``size`` octets, for a person; empty without any."""


class SenderHost(Protocol):
    """The link of a sender, as far as the sender needs it.

    Attributes:
        endpoint, epoch, max_payload, send_timeout: as the link was opened.
        closing: from now on nothing may be sent.
        closed_because: what `LinkClosed` says of the link.
    """

    endpoint: str
    epoch: int
    max_payload: int
    send_timeout: float
    closing: bool
    closed_because: str

    @property
    def closed(self) -> bool:
        """Whether the link was closed."""

    @property
    def in_callback(self) -> bool:
        """Whether the calling thread is inside a handler of this link."""

    @property
    def peer_manager(self) -> PeerDirectory:
        """The peers of the link."""

    def peers(self) -> list[str]:
        """Names of the nodes that are up."""

    def wait(self, done: Callable[[], object], timeout: float | None) -> None:
        """Return when ``done()`` holds, after ``timeout`` seconds, or when the link closes."""

    def wake_transmit(self) -> None:
        """Messages wait in a queue, or there is room for them: have them transmitted."""
