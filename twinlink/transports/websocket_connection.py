"""One WebSocket connection (RFC 6455), over TCP or TLS.

Handshake and control frames are those of `websockets`.  The frames with messages are framed and parsed here: they are
one kind of few octets, and the package takes half the time of a small message, and two copies of a long one.
"""

import contextlib
import logging
import os
import re
import socket
from struct import Struct

from websockets import frames
from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

try:
    from websockets.speedups import apply_mask
except ImportError:  # it was built without a compiler
    from websockets.utils import apply_mask

from ..protocol.frames import MessageFrame, SplitFrame
from . import websocket_pages
from .base import Frame
from .receive_buffers import ReceiveBuffers
from .stream_connection import JOINED_OCTETS, MALFORMED, Octets, StreamConnection, split
from .websocket_pages import Page

SUBPROTOCOL = Subprotocol("twinlink.1")
EPOCH = re.compile(r"[?&]epoch=([0-9a-f]{16})(?:&|$)")  # in the request target of a node
REQUEST_OCTETS = 16 * 1024  # of a handshake's request
FORBIDDEN = 403  # HTTP's status for a peer with a key that is not trusted
END = b"\r\n\r\n"  # of a request, and of the response that opens a WebSocket
# Of a frame (RFC 6455 section 5.2)
BINARY = 0x80 | Opcode.BINARY  # the first octet of a message in one frame
MASKED, LENGTH = 0x80, 0x7F  # in the second
TWO_MORE, EIGHT_MORE = 126, 127  # a length in so many octets of its own
KEY_OCTETS = 4
LEAST_HEAD = 2  # octets

_short, _medium, _long = Struct("!BB").pack, Struct("!BBH").pack, Struct("!BBQ").pack

# What the protocol of `websockets` logs, a line for each frame, would reach every application that logs at that level.
quiet = logging.getLogger("twinlink.websocket")
quiet.setLevel(logging.ERROR)


def encode(topic: bytes, frame: MessageFrame, mask: bool) -> tuple[Frame, ...]:
    """A message as the parts of its WebSocket frame; clients mask (RFC 6455 section 5.3)."""
    length = 1 + len(topic) + len(frame)
    masked = MASKED if mask else 0
    if length < TWO_MORE:
        head = _short(BINARY, masked | length)
    elif length < 0x10000:
        head = _medium(BINARY, masked | TWO_MORE, length)
    else:
        head = _long(BINARY, masked | EIGHT_MORE, length)
    header, payload = (frame.header, frame.payload) if type(frame) is SplitFrame else (b"", frame)
    begin = b"".join((bytes((len(topic),)), topic, header))
    if mask:
        key = os.urandom(KEY_OCTETS)
        head, begin, payload = head + key, b"", apply_mask(begin + payload, key)
    if length < JOINED_OCTETS:
        return (b"".join((head, begin, payload)),)
    return head + begin, payload


class WebsocketConnection(StreamConnection):
    """As `StreamConnection`.

    Args:
        protocol: of a client or a server.

    Attributes:
        pages: what a browser may ask for in place of a WebSocket.
        token: with which each request target begins; empty: none.
    """

    first_octets = b"GET "

    def __init__(
        self,
        opened: socket.socket,
        protocol: ClientProtocol | ServerProtocol,
        unsent_limit: int,
        buffers: ReceiveBuffers,
        now: float,
    ) -> None:
        super().__init__(opened, unsent_limit, buffers, now)
        self.protocol = protocol
        self.pages: dict[str, Page] = {}
        self.token = ""
        self._masks = isinstance(protocol, ClientProtocol)
        self._most = protocol.max_message_size or 0
        self._is_over = False  # what comes from now on is for the protocol to reject or ignore
        self._handshake_octets = 0
        self._tail = b""  # of these
        self._fragments: bytearray | None = None  # of a message that comes in several frames
        self._in_fragments = False

    # Receiving

    def _shake_hands(self, octets: bytes) -> bytes:
        protocol = self.protocol
        found = (self._tail + octets).find(END)
        end = len(octets) if found < 0 else found + len(END) - len(self._tail)
        self._tail = (self._tail + octets[:end])[-len(END) + 1 :]
        self._handshake_octets += end
        self._take_handshake(octets[:end])
        if not self.is_open and end < len(octets):
            self._take_handshake(octets[end:])  # the body of a response
        if protocol.handshake_exc is not None and not self.refused:
            self.refused = str(protocol.handshake_exc)
        elif not self.is_open and self._handshake_octets > REQUEST_OCTETS and isinstance(protocol, ServerProtocol):
            self.refused = f"more than {REQUEST_OCTETS} octets of a handshake"
            self.abort()
        self._answer()
        return octets[end:] if self.is_open else b""

    def _take_handshake(self, octets: bytes) -> None:
        self.protocol.receive_data(octets)
        for event in self.protocol.events_received():
            if isinstance(event, Request):
                self._on_request(event)
            elif isinstance(event, Response):
                self._on_response(event)

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
        self.is_forbidden = response.status_code == FORBIDDEN
        if self.protocol.handshake_exc is None:
            if self.protocol.subprotocol == SUBPROTOCOL:
                self.is_open = True
            else:
                self.refused = f"it does not take the subprotocol {SUBPROTOCOL}"

    def _parse(self, octets: Octets, end: int) -> int:
        at, masked, self._wanted = 0, 0 if self._masks else MASKED, 0
        if self._is_over:
            self._hand_over(octets[:end])
            return end
        while end - at >= LEAST_HEAD:
            second, body = octets[at + 1], at + LEAST_HEAD
            if (length := second & LENGTH) >= TWO_MORE:
                body += 2 if length == TWO_MORE else 8
                length = int.from_bytes(octets[at + LEAST_HEAD : body])
            if masked:
                body += KEY_OCTETS
            if body > end:
                break
            if second & MASKED != masked or length > self._most:
                self._hand_over(octets[at:end])  # to be rejected, without what is to follow
                return end
            if (after := body + length) > end:
                self._wanted = after - at
                break
            if octets[at] != BINARY or self._in_fragments:
                self._hand_over(octets[at:after])
            else:
                self.inbox_octets += length
                if masked:
                    message = apply_mask(memoryview(octets)[body:after], octets[body - KEY_OCTETS : body])
                    self.inbox.append(split(message, 0, length))
                else:
                    self.inbox.append(split(octets, body, after))
            at = after
        return at

    def _hand_over(self, octets: Octets) -> None:
        """Have the protocol take in a frame of control, of a message in several frames, or one that it rejects."""
        protocol = self.protocol
        protocol.receive_data(octets)
        for frame in protocol.events_received():
            assert isinstance(frame, frames.Frame)
            self._on_frame(frame)
        self._is_over = protocol.parser_exc is not None or protocol.close_rcvd is not None
        self._assembled_octets = len(self._fragments) if self._fragments is not None else 0
        self._answer()

    def _on_frame(self, frame: frames.Frame) -> None:
        # RFC 6455 section 5.4: proxies may divide a message.
        if frame.opcode not in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
            return
        if frame.opcode is not Opcode.CONT:
            self._fragments = bytearray() if frame.opcode is Opcode.BINARY else None
        if self._fragments is not None:
            self._fragments += frame.data
        self._in_fragments = not frame.fin
        if frame.fin:
            message, self._fragments = self._fragments, None
            self.inbox_octets += len(message or b"")
            self.inbox.append(MALFORMED if message is None else split(message, 0, len(message)))

    def _on_end(self) -> None:
        self.protocol.receive_eof()

    # Control

    def greet(self) -> None:
        """Send the request."""
        assert isinstance(self.protocol, ClientProtocol)
        self.protocol.send_request(self.protocol.connect())
        self._answer()

    def _answer(self) -> None:
        for written in self.protocol.data_to_send():
            if written:
                self.transmit((written,))
            else:  # the end of what this side sends
                self.finish()

    def ping(self, now: float) -> None:
        """Have the other side answer, as every WebSocket program does."""
        self.pinged_s = now
        self.transmit((frames.Frame(Opcode.PING, b"").serialize(mask=self._masks),))

    def say_close(self) -> None:
        """Begin the closing handshake (RFC 6455 section 7.1.2), behind all that is to be sent."""
        if self.is_open and self.protocol.state is OPEN:
            self.protocol.send_close(CloseCode.GOING_AWAY)
            self._answer()

    def close(self) -> None:
        """As `StreamConnection.close`; the protocol, too, refers to what refers to it."""
        super().close()
        with contextlib.suppress(ValueError):  # another thread is in it, whose end cuts it
            self.protocol.parser.close()
        self.protocol.reader.buffer.clear()
        self._fragments = None
