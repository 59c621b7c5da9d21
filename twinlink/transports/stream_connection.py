"""One connection of a stream of frames, over TCP or TLS, on a socket that never blocks."""

import socket
import ssl
import struct
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, ClassVar

from .base import Frame
from .receive_buffers import ReceiveBuffers

READ_OCTETS = 64 * 1024  # at a time
READS = 16  # in a row, while a long message is incomplete
LONG_OCTETS = 64 * 1024  # a longer message is read into a buffer of its own, of which the link gets a view
JOINED_OCTETS = 16 * 1024  # up to here, to copy a frame behind its head is quicker than to send it from where it is
AT_ONCE = 2 * 1024 * 1024 + 4096  # of such a buffer; it grows for the few messages that are longer
GROWTH = 256 * 1024
LOW_WATER_OCTETS = 256 * 1024  # of a long message that is awaited at a time, but not for longer than this
LOW_WATER_S = 0.1  # so that the dialer, which ends what is silent, sees that something comes
# What the kernel holds beyond what TCP has sent.  More waits here, where it is counted and where `offer` sees it.
UNSENT_IN_KERNEL = 256 * 1024
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: discard what is unsent
ADDED_OCTETS = 256  # the most that a message has before its frame: the topic, and its length
MALFORMED = b"", b""
# OpenSSL's reasons where the other side does not speak TLS
FOREIGN_TLS = {"HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}

Octets = bytes | bytearray
Message = tuple[bytes, Frame]  # topic and frame; `MALFORMED` for what cannot be one


def split(octets: Octets, begin: int, end: int) -> Message:
    """Topic and frame of the message in octets[begin:end]; `MALFORMED` for what cannot be one.

    A long frame is a view of the octets.
    """
    at = begin + 1 + octets[begin] if begin < end else 0
    if not begin + 1 < at <= end:
        return MALFORMED
    if end - begin < LONG_OCTETS:
        return bytes(octets[begin + 1 : at]), bytes(octets[at:end])
    return bytes(octets[begin + 1 : at]), memoryview(octets)[at:end].toreadonly()


class StreamConnection(ABC):
    """One thread at a time calls `read` and `close`; any thread may call the other methods.

    Args:
        opened: connected; for TLS, wrapped and possibly before its handshake.
        unsent_limit: octets that may wait here to be sent.
        buffers: of all connections that the same thread reads.
        now: monotonic, in seconds, as all times here.

    Attributes:
        is_secure: it has TLS.
        context: of TLS; None without.
        is_open: the handshake has succeeded.
        is_forbidden: it was refused, as its key is not trusted.
        ended: nothing more will come or go, and the thread that reads is to close it.
        epoch: of the node at the other end; None for a program that gave none.
        takes_data: whether it is sent messages, or only hellos and acks.
        heard_s, pinged_s: when something was last received, and when it was last pinged.
        finished_s: when this side had nothing more to send, and left the end to the other side; None before.
        partial_octets: that a message takes which is not complete yet.
        inbox_octets: of the messages in ``inbox``; the transport sets it to 0 when that is empty.
        unsent_octets: that wait here to be sent.
        inbox: messages that were read, and wait for the link.
        overflowed: they have exceeded their limit, so nothing more is sent, and the connection is to be ended.
        begins: its first octets, while the handshake has not succeeded.
        refused: why the handshake failed, for a person; empty while it has not.
        tls_error: how TLS failed.
        certificate: DER, that the other side has proved to have the key of; empty without one.
        refuses: called when it wants to open; whether it is refused, as its key is not trusted.
        on_blocked: called when octets begin to wait, and when none do any more, with whether they do.
    """

    first_octets: ClassVar[bytes]  # with which a client that speaks the protocol begins

    def __init__(self, opened: socket.socket, unsent_limit: int, buffers: ReceiveBuffers, now: float) -> None:
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_IN_KERNEL)
        host, port = opened.getpeername()[:2]
        self.host = host
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.fd = opened.fileno()
        self.is_open = self.is_forbidden = self.ended = self.overflowed = False
        self.epoch: int | None = None
        self.takes_data = True
        self.opened_s = self.heard_s = self.pinged_s = now
        self.finished_s: float | None = None
        self.partial_octets = self.inbox_octets = self.unsent_octets = 0
        self.inbox: deque[Message] = deque()
        self.unsent_limit = unsent_limit
        self.begins = b""
        self.refused = ""
        self.tls_error: ssl.SSLError | None = None
        self.certificate = b""
        self.refuses: Callable[[], bool] = lambda: False
        self.on_blocked: Callable[[bool], None] = lambda blocked: None
        self._socket = opened
        self._tls = opened if isinstance(opened, ssl.SSLSocket) else None
        self.is_secure = self._tls is not None
        self.context = self._tls.context if self._tls is not None else None
        self._in_tls_handshake = self._tls is not None and self._tls.version() is None
        if self._tls is not None and not self._in_tls_handshake:
            self.certificate = self._tls.getpeercert(binary_form=True) or b""
        self._decrypted = 0  # octets that OpenSSL holds, of a record that was read in part
        self._lock = threading.Lock()  # of what is to be sent; with TLS, also of what is received
        self._unsent: deque[memoryview] = deque()
        self._blocked = False
        self._rest = b""  # of a message that is not complete yet
        self._wanted = 0  # octets of that message; 0: it does not say yet
        self._buffers = buffers
        self._buffer: bytearray | None = None  # of a long message
        self._filled = 0  # octets of it
        self._long = 0  # octets of the last message, if it was long: the next is taken to be alike
        self._low_water = 1  # of the socket
        self._assembled_octets = 0  # of a message that comes in several frames

    @property
    def is_foreign(self) -> bool:
        """Whether the program at the other end, a client, spoke another protocol."""
        if self.is_open or self.is_forbidden:
            return False
        if self.tls_error is not None:
            return self.tls_error.reason in FOREIGN_TLS
        return bool(self.refused) or not self.first_octets.startswith(self.begins[: len(self.first_octets)])

    # Receiving

    @abstractmethod
    def _shake_hands(self, octets: bytes) -> bytes:
        """Take in what comes while the connection is not open; returns what is behind the handshake."""

    @abstractmethod
    def _parse(self, octets: Octets, end: int) -> int:
        """Put the messages in octets[:end] into ``inbox``; returns where the first begins that is not complete.

        Sets ``_wanted`` then.
        """

    def _on_end(self) -> None:  # noqa: B027  (for protocols that can tell a clean end)
        """The other side has ended the stream."""

    def read(self, now: float) -> None:
        """Read what has arrived, up to the end of a message; control frames are answered."""
        if self.ended:  # by `abort`
            return
        try:
            for reads in count(1):
                if self._buffer is None and not self._long:
                    octets = self._receive(None)
                    received = None if octets is None else len(octets)
                    if received:
                        if self._rest or not self.is_open:
                            octets = self._rest + octets
                            self._take(octets, len(octets))
                        elif (at := self._parse(octets, received)) < received:
                            self._keep(octets, at, received)
                        else:
                            self.partial_octets = self._assembled_octets
                else:
                    received = self._fill()
                if received is None:
                    break
                self.heard_s = now
                if not received:
                    self.ended = True
                    self._on_end()
                if self._decrypted and not self.ended:  # no event of the socket would tell of it
                    continue
                if reads >= READS or self.inbox or self.ended or not self.partial_octets:
                    break
        except BaseException:  # Ctrl-C: a part may have been taken in
            self.abort()
            raise

    def _fill(self) -> int | None:
        """Read into the buffer of a long message; returns how much, 0 at the end, None if there is nothing now."""
        buffer = self._buffer
        if buffer is None:  # as long as the last one, which then needs no copy
            buffer = self._buffers.take(self._long)
            self._wanted = self._filled = 0
        elif self._filled == len(buffer):
            buffer.extend(bytes(min(GROWTH, self._wanted - self._filled)))
        received: int | None = self._receive(memoryview(buffer)[self._filled : self._wanted or None])
        if received:
            self._buffer = buffer
            self._filled += received
            if self._filled < self._wanted:
                self.partial_octets = len(buffer) + self._assembled_octets
                self._await_octets(min(self._wanted, len(buffer)) - self._filled)
            else:
                self._take(buffer, self._filled)
        return received

    def limit_wait(self, now: float) -> None:
        """Octets have come, and fewer than are awaited: they show that the other side is alive."""
        if self._low_water > 1 and now - self.heard_s > LOW_WATER_S:
            self._await_octets(1)

    def _await_octets(self, octets: int) -> None:
        """Be ready to read only when so many have come, or the end: each wake-up and each read costs both sides."""
        if self._tls is None and (low_water := min(max(octets, 1), LOW_WATER_OCTETS)) != self._low_water:
            self._low_water = low_water
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)

    def _receive(self, into: memoryview | None) -> Any:
        """What has arrived, or how much of it; empty or 0 at the end, None if there is nothing now."""
        try:
            if self._tls is None:
                return self._socket.recv(READ_OCTETS) if into is None else self._socket.recv_into(into)
            with self._lock:
                if self._in_tls_handshake:
                    self._tls.do_handshake()
                    self._in_tls_handshake = False
                    self.certificate = self._tls.getpeercert(binary_form=True) or b""
                received = self._tls.recv(READ_OCTETS) if into is None else self._tls.recv_into(into)
                self._decrypted = self._tls.pending()
                return received
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except ssl.SSLError as error:
            self.tls_error = error
        except OSError:  # it was reset
            pass
        return b"" if into is None else 0

    def _take(self, octets: Octets, end: int) -> None:
        """Take in octets[:end]."""
        if not self.is_open:
            self.begins = self.begins or bytes(octets[:32])
            octets = self._shake_hands(bytes(octets))
            end = len(octets)
        self._keep(octets, self._parse(octets, end) if self.is_open else 0, end)

    def _keep(self, octets: Octets, at: int, end: int) -> None:
        """Keep octets[at:end], the beginning of a message."""
        left = end - at
        if not left:
            self._await_octets(1)
            self._buffer, self._rest = None, b""
            if end <= LONG_OCTETS:
                self._long = 0
        elif (wanted := self._wanted) > LONG_OCTETS:
            if octets is not self._buffer or at or wanted > len(octets):
                buffer = self._buffers.take(wanted) if wanted <= AT_ONCE else bytearray(AT_ONCE)
                buffer[:left] = memoryview(octets)[at:end]
                self._buffer, self._filled = buffer, left
            self._long, self._rest = min(wanted, AT_ONCE), b""
            self._await_octets(min(wanted, AT_ONCE) - left)
        else:
            self._buffer, self._rest, self._long = None, bytes(octets[at:end]), 0
            self._await_octets(1)
        self.partial_octets = self._assembled_octets + (len(self._buffer) if self._buffer is not None else left)

    # Sending

    def transmit(self, parts: Sequence[Frame]) -> None:
        """Send these octets behind all others, now or when the socket takes them.  They do not change any more."""
        with self._lock:
            if self.ended or self.overflowed or self.finished_s is not None:
                return
            sent = 0
            if not self._unsent and self._tls is None:
                try:
                    sent = self._socket.send(parts[0]) if len(parts) == 1 else self._socket.sendmsg(parts)
                except OSError:  # also where the socket takes nothing now: `_flush` meets it again
                    pass
                except BaseException:  # Ctrl-C: octets may be sent
                    self.abort()
                    raise
            for part in parts:
                if sent < (octets := len(part)):
                    self._unsent.append(memoryview(part)[sent:])
                    self.unsent_octets += octets - sent
                    sent = 0
                else:
                    sent -= octets
            if self._unsent:
                self._flush()
                self.overflowed = self.unsent_octets > self.unsent_limit

    def flush(self) -> None:
        """The socket takes octets again."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        unsent = self._unsent
        try:
            while unsent:
                first = unsent[0]
                sent = self._socket.send(first)
                self.unsent_octets -= sent
                if sent == len(first):
                    unsent.popleft()
                else:
                    unsent[0] = first[sent:]
            if self.finished_s is not None:
                socket.socket.shutdown(self._socket, socket.SHUT_WR)  # SSLSocket's own would stop decrypting
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:  # the other side has ended the connection, and what it sent before is still to be read
            unsent.clear()
            self.unsent_octets, self.finished_s = 0, self.heard_s
        except BaseException:  # Ctrl-C: the octets may be sent, and not be counted
            self.abort()
            raise
        if bool(unsent) != self._blocked:
            self._blocked = not self._blocked
            self.on_blocked(self._blocked)

    # Control

    @abstractmethod
    def greet(self) -> None:
        """Of a connector: begin the handshake."""

    @abstractmethod
    def ping(self, now: float) -> None:
        """Have the other side answer."""

    @abstractmethod
    def say_close(self) -> None:
        """Say that this side ends, behind all that is to be sent."""

    def finish(self) -> None:
        """Send nothing more; the other side ends the connection."""
        with self._lock:
            self.finished_s = self.heard_s
            self._flush()

    def abort(self) -> None:
        """End it now, without what is unsent; the thread that reads learns of it."""
        self.ended = True
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:  # it has ended, or is closed
            pass

    def close(self) -> None:
        """Give back the descriptor, and what was received of an incomplete message.

        The callbacks refer to what refers to them: without a cut, that would wait for the garbage collector, which
        counts objects and not octets.
        """
        self.ended = True
        with self._lock:
            self._unsent.clear()
            self._socket.close()
        self._buffer, self._rest, self.partial_octets = None, b"", 0
        self.refuses, self.on_blocked = lambda: False, lambda blocked: None
