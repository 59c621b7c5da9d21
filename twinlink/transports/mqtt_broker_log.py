"""Warnings about a broker, not at every attempt to connect."""

import logging
import time

from .base import Endpoint

AGAIN_S = 60.0  # without the same, after which it is logged again
MOST = 64

logger = logging.getLogger("twinlink")


class BrokerLog:
    """The broker's log, as one transport reads it."""

    def __init__(self, endpoint: Endpoint) -> None:
        """``endpoint``: of the broker."""
        self._endpoint = endpoint
        self._last = ""
        self._noted: dict[str, float] = {}  # and when each was last met

    def warn(self, what: str) -> None:
        """Log what the broker does, unless it is the same as before."""
        if what != self._last:
            self._last = what
            logger.warning("mqtt: the broker at %s %s", self._endpoint, what)

    def on_connected(self) -> None:
        """The broker has accepted the client: what `warn` logs next, it logs anew."""
        self._last = ""

    def note(self, what: str) -> bool:
        """Log what the broker does, once for as long as it goes on; returns whether that was before."""
        now, last = time.monotonic(), self._noted.pop(what, -AGAIN_S)
        if now - last >= AGAIN_S:
            logger.warning("mqtt: the broker at %s %s", self._endpoint, what)
        self._noted[what] = now
        if len(self._noted) > MOST:
            del self._noted[next(iter(self._noted))]
        return now - last < AGAIN_S
