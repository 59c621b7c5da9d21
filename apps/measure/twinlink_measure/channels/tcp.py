"""A bare TCP connection: the limit of host and path."""

import contextlib
import socket
import struct
import threading
import time
from typing import Any

from twinlink.process.guarded_thread import GuardedThread
from twinlink.process.ip_address import family_of

from ..frames import HEADER_OCTETS
from .base import MAX_FRAME, TICK_S, PeerLost, RawChannel

BUFFER = 4 * 1024 * 1024  # octets, or what the kernel allows; with its default 1 MB takes several round trips
SEND_S = 5.0  # a peer that takes nothing for this long is lost
RETRY_S = 0.05
_LENGTH = struct.Struct("!I")  # in a header, behind the word with the kind


class TcpChannel(RawChannel):
    """Consecutive frames on one connection; each header has the length."""

    def open(self) -> None:
        """Listen, or connect; the connection is made in the background."""
        self._socket: socket.socket | None = None
        self._made = threading.Event()
        self._closing = threading.Event()
        self._buffer = bytearray(64 * 1024)
        self._first = self._end = 0  # the unread part of the buffer
        address = (self.endpoint.host.strip("[]"), self.endpoint.port)
        if self.listening:
            self._listener = socket.create_server(address, family=family_of(address[0]))
            self._tune(self._listener)
            body = self._accept
        else:
            self._address = address
            body = self._connect
        self._connecting = GuardedThread(body, "raw-tcp-connect")
        self._connecting.start()

    def _accept(self) -> None:
        self._listener.settimeout(0.1)
        while not self._closing.is_set():
            with contextlib.suppress(TimeoutError, OSError):
                self._connected(self._listener.accept()[0])
                return

    def _connect(self) -> None:
        while not self._closing.is_set():
            made = socket.socket(family_of(self._address[0]))
            self._tune(made)
            try:
                made.connect(self._address)
            except OSError:
                made.close()
                time.sleep(RETRY_S)
            else:
                self._connected(made)
                return

    def _tune(self, made: socket.socket) -> None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)

    def _connected(self, made: socket.socket) -> None:
        made.settimeout(None)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Time-outs of the socket: Python's own would take two system calls per operation.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, int(TICK_S * 1e6)))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(SEND_S), 0))
        self._socket = made
        self._made.set()

    def settings(self) -> dict[str, Any]:
        """The options of the connection."""
        return {"no_delay": True, "send_buffer": BUFFER, "receive_buffer": BUFFER}

    def put(self, topic: bytes, frame: bytes | bytearray) -> None:
        """Send the frame; without a connection it is lost.  Raises PeerLost."""
        if self._socket is not None:
            try:
                self._socket.sendall(frame)
            except BlockingIOError:
                raise PeerLost(f"the peer took nothing for {SEND_S:g} s") from None
            except ConnectionError:  # the peer is gone: there will be no answer
                pass

    def get(self, wait: bool = True) -> Any:
        """The next frame; a view that is valid until the next call."""
        if self._socket is None:
            self._made.wait(TICK_S)
            return None
        needed = HEADER_OCTETS
        while True:
            have = self._end - self._first
            if have >= HEADER_OCTETS:
                needed = HEADER_OCTETS + _LENGTH.unpack_from(self._buffer, self._first + 4)[0]
                if needed > MAX_FRAME:
                    self._socket.close()
                    raise PeerLost(f"the peer announced a frame of {needed} octets: {MAX_FRAME} are the most")
                if have >= needed:
                    first = self._first
                    self._first += needed
                    return memoryview(self._buffer)[first : first + needed]
            if not self._read(needed, 0 if wait or have else socket.MSG_DONTWAIT):
                return None

    def _read(self, needed: int, flags: int) -> bool:
        """Read more, with room for a frame of ``needed`` octets; False if nothing came."""
        assert self._socket is not None
        if self._first == self._end:
            self._first = self._end = 0
        if len(self._buffer) - self._first < needed:
            rest = self._buffer[self._first : self._end]
            if len(self._buffer) < needed:
                self._buffer = bytearray(2 * needed)
            self._buffer[: len(rest)] = rest
            self._first, self._end = 0, len(rest)
        try:
            count = self._socket.recv_into(memoryview(self._buffer)[self._end :], 0, flags)
        except (BlockingIOError, ConnectionError):
            return False
        if count == 0:  # closed by the peer
            time.sleep(TICK_S)
        self._end += count
        return count > 0

    def close(self) -> None:
        """Close the connection."""
        self._closing.set()
        self._connecting.join()
        if self.listening:
            self._listener.close()
        if self._socket is not None:
            self._socket.close()
