"""The RAN side of the three E3 channels on POSIX stream sockets (`twinlink_e3.frames`), as libe3 has it since 0.0.8."""

import socket
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

import zmq
from twinlink_e3 import MAX_UNFRAMED_OCTETS, Endpoints, frame, listening, posix_address

from .sockets import LINGER_MS, QUEUE, cannot_be_bound, free_path

SETUP, TO_DAPP, FROM_DAPP = range(3)
BACKLOG = 5
SETUP_TIMEOUT_S = 2.0  # for a dApp that connects and sends no request
SEND_BATCH = 64 * 1024  # octets given to a socket at once


class _DApp:
    """The connection of a dApp that receives."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._queue: deque[memoryview] = deque()

    @property
    def queued(self) -> int:
        """PDUs that the socket has not taken."""
        return len(self._queue)

    def send(self, framed: bytes) -> None:
        """Queue a PDU, and send what the socket takes.  Raises OSError if the dApp is gone, or reads too slowly."""
        if len(self._queue) >= QUEUE:
            raise BlockingIOError("the dApp does not read")
        self._queue.append(memoryview(framed))
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes.  Raises OSError."""
        while self._queue:
            try:
                sent = self.connection.send(self._queue[0][:SEND_BATCH], socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            if sent < len(self._queue[0]):
                self._queue[0] = self._queue[0][sent:]
            else:
                self._queue.popleft()


class PosixSockets:
    """A listener for each channel; see `bind_sockets` and `Sockets`.

    A dApp that is `QUEUE` PDUs behind is disconnected, as libe3 does with one that takes nothing for half a second.
    """

    def __init__(self, endpoints: Endpoints, *, lossless: bool = False) -> None:
        self._lossless = lossless
        self._files: list[Path] = []
        self._listeners: tuple[list[socket.socket], ...] = ([], [], [])  # of each channel
        self._asking: socket.socket | None = None
        self._asked_s = 0.0
        self._readers: list[_DApp] = []
        self._writers: list[socket.socket] = []
        self._poller = zmq.Poller()
        try:
            for channel, endpoint in enumerate((endpoints.setup, endpoints.to_dapp, endpoints.from_dapp)):
                self._listen(endpoint, self._listeners[channel])
        except BaseException:
            self.close()
            raise

    def wait(self, timeout_ms: int) -> None:
        """See `Sockets`."""
        self._poller.poll(timeout_ms)

    def watch(self, descriptor: int) -> None:
        """See `Sockets`."""
        self._poller.register(descriptor, zmq.POLLIN)

    def wait_to_send(self, timeout_ms: int) -> None:
        """See `Sockets`."""
        outward = zmq.Poller()
        for dapp in self._readers:
            if dapp.queued:
                outward.register(dapp.connection, zmq.POLLOUT)
        outward.poll(timeout_ms)
        self._flush()

    def setup_request(self) -> bytes | None:
        """See `Sockets`."""
        if self._asking is None:
            if (connection := self._accept(SETUP)) is None:
                return None
            self._asking, self._asked_s = connection, time.monotonic()
            self._poller.register(connection, zmq.POLLIN)
        try:
            octets = self._asking.recv(MAX_UNFRAMED_OCTETS)  # one read is one request
        except BlockingIOError:
            if time.monotonic() - self._asked_s < SETUP_TIMEOUT_S:
                return None
            octets = b""
        except OSError:
            octets = b""
        if not octets:  # the dApp left, or sends nothing
            self._drop_asking()
            return None
        return octets

    def answer_setup(self, octets: bytes) -> None:
        """See `Sockets`."""
        if self._asking is not None:
            with suppress(OSError):
                self._asking.setblocking(True)
                self._asking.settimeout(LINGER_MS / 1000)
                self._asking.sendall(frame(octets))
            self._drop_asking()

    def from_dapp(self) -> bytes | None:
        """See `Sockets`."""
        self._accept_all()
        for connection in list(self._writers):
            try:
                octets = connection.recv(MAX_UNFRAMED_OCTETS)  # one read is one PDU
            except BlockingIOError:
                continue
            except OSError:
                octets = b""
            if octets:
                return octets
            self._writers.remove(connection)
            self._close(connection)
        return None

    def send(self, octets: bytes) -> bool:
        """See `Sockets`."""
        self._accept_all()
        if self._lossless:
            self._flush()
            if any(dapp.queued for dapp in self._readers):
                return False
        framed = frame(octets)
        for dapp in list(self._readers):
            try:
                dapp.send(framed)
            except OSError:
                self._drop(dapp)
        return True

    def close(self) -> None:
        """See `Sockets`."""
        for file in self._files:
            file.unlink(missing_ok=True)
        until_s = time.monotonic() + LINGER_MS / 1000
        while any(dapp.queued for dapp in self._readers) and time.monotonic() < until_s:
            self.wait_to_send(10)
        self._drop_asking()
        listeners = [one for channel in self._listeners for one in channel]
        for connection in (*listeners, *self._writers, *(dapp.connection for dapp in self._readers)):
            connection.close()

    def _listen(self, endpoint: str, listeners: list[socket.socket]) -> None:
        file = free_path(endpoint)
        try:
            if file:
                file.unlink(missing_ok=True)  # left by a gNB that was killed
            for one in listening(endpoint):
                listeners.append(_bound(one))
        except OSError as error:
            raise cannot_be_bound(endpoint, error.errno or 0, error.strerror or str(error)) from error
        if file:
            self._files.append(file)
        for listener in listeners:
            self._poller.register(listener, zmq.POLLIN)

    def _accept(self, channel: int) -> socket.socket | None:
        for listener in self._listeners[channel]:
            with suppress(OSError):
                connection, _ = listener.accept()
                connection.setblocking(False)
                if connection.family != socket.AF_UNIX:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return connection
        return None

    def _accept_all(self) -> None:
        while (connection := self._accept(TO_DAPP)) is not None:
            self._readers.append(_DApp(connection))
        while (connection := self._accept(FROM_DAPP)) is not None:
            self._writers.append(connection)
            self._poller.register(connection, zmq.POLLIN)

    def _flush(self) -> None:
        for dapp in list(self._readers):
            try:
                dapp.flush()
            except OSError:
                self._drop(dapp)

    def _drop(self, dapp: _DApp) -> None:
        self._readers.remove(dapp)
        self._close(dapp.connection)

    def _drop_asking(self) -> None:
        if self._asking is not None:
            self._close(self._asking)
            self._asking = None

    def _close(self, connection: socket.socket) -> None:
        with suppress(KeyError):
            self._poller.unregister(connection)
        connection.close()


def _bound(endpoint: str) -> socket.socket:
    """A listener that does not block.  Raises OSError."""
    family, address = posix_address(endpoint)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family != socket.AF_UNIX:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener
