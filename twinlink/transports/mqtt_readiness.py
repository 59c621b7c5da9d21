"""When the socket of an MQTT client is to be served."""

import contextlib
import select
import socket
import ssl
from typing import Any

from paho.mqtt.client import Client


class Readiness:
    """Whether one transport is ready; `wait` is for one thread at a time, `wake` for any."""

    def __init__(self) -> None:
        self._wakes, self._wake = socket.socketpair()
        for end in (self._wakes, self._wake):
            end.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._wakes, select.POLLIN)
        self._polled: tuple[int, int] | None = None

    def wait(self, timeout_s: float, client: Client, descriptor: int | None) -> None:
        """Wait until the socket is readable, or writable if needed, or another thread calls `wake`.

        ``descriptor``: of the socket; None while there is none to be served.
        """
        if descriptor is None:
            wanted = None
        elif _has_decrypted(client):
            return
        else:
            events = select.POLLIN | select.POLLOUT if client.want_write() else select.POLLIN
            wanted = (descriptor, events)
        if wanted != self._polled:
            if self._polled:
                self._poll.unregister(self._polled[0])
            if wanted:
                self._poll.register(*wanted)
            self._polled = wanted
        for ready, _ in self._poll.poll(timeout_s * 1000):
            if ready == self._wakes.fileno():
                self._wakes.recv(1000)

    def is_readable(self, client: Client, descriptor: int | None) -> bool:
        """Whether there is something to read now."""
        if descriptor is None:
            return False
        if _has_decrypted(client):
            return True
        looking = select.poll()
        looking.register(descriptor, select.POLLIN)
        return bool(looking.poll(0))

    def wake(self) -> None:
        """End a `wait`."""
        with contextlib.suppress(OSError):  # full: the reader will wake; closed: there is none
            self._wake.send(b"\0")

    def close(self) -> None:
        """Free the descriptors."""
        self._wakes.close()
        self._wake.close()


def _has_decrypted(client: Client) -> bool:
    """Whether TLS has octets that were read from the socket."""
    opened: Any = client.socket()
    return isinstance(opened, ssl.SSLSocket) and opened.pending() > 0
