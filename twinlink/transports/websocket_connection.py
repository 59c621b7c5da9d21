"""One WebSocket connection (RFC 6455), over TCP or TLS: the protocol of `websockets` on a socket that never blocks."""

import contextlib
import logging
import re
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable

from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from . import websocket_pages
from .base import Frame as LinkFrame
from .websocket_pages import Page

SUBPROTOCOL = Subprotocol("twinlink.1")
ADDED_OCTETS = 256  # the most that a message has before its frame: the topic, and its length
EPOCH = re.compile(r"[?&]epoch=([0-9a-f]{16})(?:&|$)")  # in the request target of a node
READ_OCTETS = 64 * 1024  # at a time
READS = 16  # in a row, while a long message is incomplete
VIEW_OCTETS = 64 * 1024  # below, a copy is quicker than a view
# What the kernel holds beyond what TCP has sent.  More waits here, where it is counted and where `offer` sees it.
UNSENT_IN_KERNEL = 256 * 1024
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: discard what is unsent
REQUEST_OCTETS = 16 * 1024  # of a handshake's request
FORBIDDEN = 403  # HTTP's status for a peer with a key that is not trusted
MALFORMED = b"", b""
# OpenSSL's reasons where the other side does not speak TLS
FOREIGN_TLS = {"HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}

# What the protocol of `websockets` logs, a line for each frame, would reach every application that logs at that level.
quiet = logging.getLogger("twinlink.websocket")
quiet.setLevel(logging.ERROR)


def encode(topic: bytes, frame: bytes, mask: bool) -> bytes:
    """A message as its WebSocket frame; clients mask (RFC 6455 section 5.3)."""
    return Frame(Opcode.BINARY, b"".join((bytes((len(topic),)), topic, frame))).serialize(mask=mask)


def decode(message: bytes | bytearray) -> tuple[bytes, LinkFrame]:
    """Topic and frame of a binary message; `MALFORMED` for what cannot be one."""
    end = 1 + message[0] if message else 0
    if not 1 < end <= len(message):
        return MALFORMED
    if len(message) < VIEW_OCTETS:
        return bytes(message[1:end]), bytes(message[end:])
    return bytes(message[1:end]), memoryview(message)[end:].toreadonly()


class WebsocketConnection:
    """One thread at a time calls `read` and `close`; any thread may call the other methods.

    Args:
        opened: connected; for TLS, wrapped and possibly before its handshake.
        protocol: of a client that has sent its request, or of a server.
        unsent_limit: octets that may wait here to be sent.
        now: monotonic, in seconds, as all times here.

    Attributes:
        is_secure: it has TLS.
        context: of TLS; None without.
        is_open: the WebSocket handshake has succeeded.
        is_forbidden: its request was refused, as its key is not trusted.
        pages: what a browser may ask for in place of a WebSocket.
        token: with which each request target begins; empty: none.
        ended: nothing more will come or go, and the thread that reads is to close it.
        epoch: of the node at the other end, from its request; None for a program that gave none.
        takes_data: whether it is sent messages, or only hellos and acks.
        heard_s, pinged_s: when something was last received, and when it was last pinged.
        finished_s: when this side had nothing more to send, and left the end to the other side; None before.
        partial_octets: of a message that is not complete yet.
        inbox_octets: of the messages in ``inbox``; the transport sets it to 0 when that is empty.
        unsent_octets: that wait here to be sent.
        inbox: messages that were read, and wait for the link.
        overflowed: they have exceeded their limit, so nothing more is sent, and the connection is to be ended.
        begins: its first octets, while the handshake has not succeeded.
        refused: why the handshake failed, for a person; empty while it has not.
        tls_error: how TLS failed.
        certificate: DER, that the other side has proved to have the key of; empty without one.
        refuses: called with a request; whether it is refused, as its key is not trusted.
        on_blocked: called when octets begin to wait, and when none do any more, with whether they do.
    """

    def __init__(
        self, opened: socket.socket, protocol: ClientProtocol | ServerProtocol, unsent_limit: int, now: float
    ) -> None:
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_IN_KERNEL)
        host, port = opened.getpeername()[:2]
        self.host = host
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.fd = opened.fileno()
        self.protocol = protocol
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
        self.pages: dict[str, Page] = {}
        self.token = ""
        self.refuses: Callable[[], bool] = lambda: False
        self.on_blocked: Callable[[bool], None] = lambda blocked: None
        self._socket = opened
        self._tls = opened if isinstance(opened, ssl.SSLSocket) else None
        self.is_secure = self._tls is not None
        self.context = self._tls.context if self._tls is not None else None
        self._in_tls_handshake = self._tls is not None and self._tls.version() is None
        if self._tls is not None and not self._in_tls_handshake:
            self.certificate = self._tls.getpeercert(binary_form=True) or b""
        self._lock = threading.Lock()  # of what is to be sent; with TLS, also of what is received
        self._unsent: deque[memoryview] = deque()
        self._blocked = False
        self._unparsed_octets = 0  # of a frame, or a handshake, that is not complete yet
        self._fragments: bytearray | None = None  # of a message that comes in several frames

    @property
    def is_foreign(self) -> bool:
        """Whether the program at the other end, a client, spoke another protocol."""
        if self.is_open or self.is_forbidden:
            return False
        if self.tls_error is not None:
            return self.tls_error.reason in FOREIGN_TLS
        return bool(self.refused) or not b"GET ".startswith(self.begins[:4])

    # Receiving

    def read(self, now: float) -> "list[Message]":
        """The messages that have arrived; control frames are answered."""
        messages: list[Message] = []
        if self.ended:  # by `abort`
            return messages
        try:
            for _ in range(READS):
                octets = self._receive()
                if octets is None:
                    break
                self.heard_s = now
                self._take(octets, messages)
                if messages or self.ended or not self.partial_octets:
                    break
        except BaseException:  # Ctrl-C: the protocol may have taken in a part
            self.abort()
            raise
        return messages

    def _receive(self) -> bytes | None:
        """What has arrived; empty at the end, None if there is nothing now."""
        try:
            if self._tls is None:
                return self._socket.recv(READ_OCTETS)
            with self._lock:
                if self._in_tls_handshake:
                    self._tls.do_handshake()
                    self._in_tls_handshake = False
                    self.certificate = self._tls.getpeercert(binary_form=True) or b""
                return self._tls.recv(READ_OCTETS)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except ssl.SSLError as error:
            self.tls_error = error
            return b""
        except OSError:  # it was reset
            return b""

    def _take(self, octets: bytes, messages: "list[Message]") -> None:
        protocol = self.protocol
        if not octets:
            protocol.receive_eof()
            self.ended = True
            return
        if not self.is_open:
            self.begins = self.begins or octets[:32]
        protocol.receive_data(octets)
        self._unparsed_octets += len(octets)
        for event in protocol.events_received():
            self._unparsed_octets = 0  # what follows it in these octets is less than what is read at a time
            if isinstance(event, Frame):
                if self.is_open:
                    self._on_frame(event, messages)
            elif isinstance(event, Request):
                self._on_request(event)
            else:
                self._on_response(event)
        self.partial_octets = self._unparsed_octets + (len(self._fragments) if self._fragments is not None else 0)
        if protocol.handshake_exc is not None and not self.refused:
            self.refused = str(protocol.handshake_exc)
        elif not self.is_open and self.partial_octets > REQUEST_OCTETS and isinstance(protocol, ServerProtocol):
            self.refused = f"more than {REQUEST_OCTETS} octets of a handshake"
            self.abort()
        for written in protocol.data_to_send():
            if written:
                self.transmit(written)
            else:  # the end of what this side sends
                self.finish()

    def _on_frame(self, frame: Frame, messages: "list[Message]") -> None:
        data = frame.data
        assert not isinstance(data, memoryview)
        if frame.opcode is Opcode.BINARY and frame.fin:
            self.inbox_octets += len(data)
            messages.append((*decode(data), self))
        elif frame.opcode in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
            # RFC 6455 section 5.4: proxies may divide a message.
            if frame.opcode is not Opcode.CONT:
                self._fragments = bytearray() if frame.opcode is Opcode.BINARY else None
            if self._fragments is not None:
                self._fragments += data
            if frame.fin:
                self.inbox_octets += len(self._fragments or b"")
                messages.append((*(MALFORMED if self._fragments is None else decode(self._fragments)), self))
                self._fragments = None

    def _on_request(self, request: Request) -> None:
        protocol = self.protocol
        assert isinstance(protocol, ServerProtocol)
        if (found := EPOCH.search(request.path)) is not None:
            self.epoch = int(found[1], 16)
        target = websocket_pages.behind_token(request.path, self.token)
        if target is None:
            self.is_forbidden = True
            response = protocol.reject(FORBIDDEN, "open the whole address that the program has printed\n")
        elif self.refuses():
            self.is_forbidden = True
            response = protocol.reject(FORBIDDEN, "the key of this node is not trusted here\n")
        else:
            page = websocket_pages.respond(self.pages, protocol, request, target)
            response = page or protocol.accept(request)
        protocol.send_response(response)
        self.is_open = response.status_code == 101

    def _on_response(self, response: Response) -> None:
        if self.protocol.handshake_exc is None:
            if self.protocol.subprotocol == SUBPROTOCOL:
                self.is_open = True
            else:
                self.refused = f"it does not take the subprotocol {SUBPROTOCOL}"

    # Sending

    def transmit(self, octets: bytes) -> None:
        """Send these octets behind all others, now or when the socket takes them."""
        with self._lock:
            if not (self.ended or self.overflowed or self.finished_s is not None):
                self._unsent.append(memoryview(octets))
                self.unsent_octets += len(octets)
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

    def ping(self, now: float) -> None:
        """Have the other side answer, as every WebSocket program does."""
        self.pinged_s = now
        self.transmit(Frame(Opcode.PING, b"").serialize(mask=isinstance(self.protocol, ClientProtocol)))

    def say_close(self) -> None:
        """Begin the closing handshake (RFC 6455 section 7.1.2), behind all that is to be sent."""
        if self.is_open and self.protocol.state is OPEN:
            self.protocol.send_close(CloseCode.GOING_AWAY)
            for octets in self.protocol.data_to_send():
                self.transmit(octets)

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

        The protocol and the callbacks refer to what refers to them: without a cut, that would wait for the garbage
        collector, which counts objects and not octets.
        """
        self.ended = True
        with self._lock:
            self._unsent.clear()
            self._socket.close()
        with contextlib.suppress(ValueError):  # another thread is in it, whose end cuts it
            self.protocol.parser.close()
        self.protocol.reader.buffer.clear()
        self._fragments, self.partial_octets, self._unparsed_octets = None, 0, 0
        self.refuses, self.on_blocked = lambda: False, lambda blocked: None


Message = tuple[bytes, LinkFrame, WebsocketConnection]  # topic, frame, and the connection that it came over
