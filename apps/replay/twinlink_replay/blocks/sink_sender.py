"""The sending side that both sink blocks share."""

from typing import Any

import twinlink

from .link_pool import Address, Lease


class SinkSender:
    """Sends on a flow; counts failures, because an exception would end the scheduler's thread.

    Args:
        logger: GNU Radio's logger of the block.
        address, flow: where to send.
        link: an open link to use instead of ``address``, or None.

    Attributes:
        sent, failed: number of messages.
        error: why the last message failed; None if it was sent.
    """

    def __init__(self, logger: Any, address: Address, flow: str, link: twinlink.Link | None) -> None:
        self.sent = self.failed = 0
        self.error: Exception | None = None
        self._logger, self._address, self._flow, self._given = logger, address, flow, link
        self._lease: Lease | None = None
        self._sender: twinlink.Sender | None = None

    def open(self) -> None:
        """Open the link, or log why it cannot be opened."""
        self.error = None
        try:
            self._lease = Lease(self._address, lambda event: None, self._logger.warn, self._given)
            self._sender = self._lease.link.sender(self._flow)
        except Exception as error:
            self.refuse(error)

    def close(self) -> None:
        """Release the link."""
        self._sender = None
        if self._lease:
            self._lease.release()
            self._lease = None

    def send(self, payload: bytes) -> None:
        """Send a message, or count a failure."""
        if self._sender is None:
            self.failed += 1
            return
        try:
            self._sender.send(payload)
            self.sent += 1
            self.error = None
        except Exception as error:
            self.refuse(error)

    def refuse(self, error: Exception) -> None:
        """Count a failure; log it if it is the first of its type in a row."""
        self.failed += 1
        if self.error is None or type(error) is not type(self.error):
            self._logger.error(str(error))
        self.error = error
