"""What the senders of a link need to know of it."""

from collections.abc import Callable

from ..protocol.peers import PeerManager


class LinkState:
    """Of one link.

    Attributes:
        endpoint, epoch, max_payload, send_timeout: as the link was opened.
        closing: from now on nothing may be sent.
        closed: the link was closed.
        closed_because: what `LinkClosed` says of the link.
        describe: how the link was opened, and its peers, for a person.
        in_callback: whether the calling thread is inside a handler of this link.
        wait: returns when ``done()`` holds, after ``timeout`` seconds, or when the link closes.
        wake_transmit: messages wait in a queue, or there is room for them: have them transmitted.
    """

    closed: Callable[[], bool]
    describe: Callable[[], str]
    in_callback: Callable[[], bool]
    wait: Callable[[Callable[[], object], float | None], None]
    wake_transmit: Callable[[], None]

    def __init__(
        self, endpoint: str, epoch: int, max_payload: int, send_timeout: float, peer_manager: PeerManager
    ) -> None:
        self.endpoint = endpoint
        self.epoch = epoch
        self.max_payload = max_payload
        self.send_timeout = send_timeout
        self.closing = False
        self.closed_because = "is closed"
        self.peer_manager = peer_manager
