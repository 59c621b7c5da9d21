"""The way back, as the sink blocks share it."""

import twinlink
from twinlink.appkit.console import log

from .link_pool import Address, Lease


class SinkSender:
    """What both sinks share: a flow to send on, and counting instead of raising into the scheduler.

    Attributes:
        sent, failed: messages.
        error: why the last one failed; None when it did not.
    """

    def __init__(self, name: str, address: Address, flow: str, link: twinlink.Link | None) -> None:
        self.sent = self.failed = 0
        self.error: Exception | None = None
        self._name, self._address, self._flow, self._given = name, address, flow, link
        self._lease: Lease | None = None
        self._sender: twinlink.Sender | None = None

    def open(self) -> None:
        """Open the link, or say why not."""
        self.error = None
        try:
            self._lease = Lease(self._address, lambda event: None, self._given)
            self._sender = self._lease.link.sender(self._flow)
        except (twinlink.TwinlinkError, ValueError) as error:
            self.refuse(error)

    def close(self) -> None:
        """Give the link back."""
        self._sender = None
        if self._lease:
            self._lease.release()
            self._lease = None

    def send(self, payload: bytes) -> None:
        """Send, or count a failure."""
        if self._sender is None:
            self.failed += 1
            return
        try:
            self._sender.send(payload)
            self.sent += 1
            self.error = None
        except twinlink.TwinlinkError as error:
            self.refuse(error)

    def refuse(self, error: Exception) -> None:
        """Count a failure; told on stderr when it is the first of its kind in a row."""
        self.failed += 1
        if self.error is None or type(error) is not type(self.error):
            log(self._name, str(error))
        self.error = error
