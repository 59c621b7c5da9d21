"""OPC UA PubSub over UDP or Ethernet: a frame is the only field, a ByteString, of a UADP NetworkMessage (`../uadp.py`).

Over UDP, the Digital Twin answers to the address of the newest datagram; Ethernet frames are broadcast, as the cable
between the two namespaces has two ends.  Nothing is repaired: what a full buffer drops is lost.
"""

import contextlib
import socket
import struct
from typing import Any

from twinlink.errors import ConfigurationError
from twinlink.process.ip_address import family_of
from twinlink.transports import Endpoint

from ..uadp import ETHER_TYPE, BuiltIn, DataSetMessage, NetworkMessage, UadpError, Variant, decode, encode
from .base import TICK_S, RawChannel
from .tcp import BUFFER

MOST_OCTETS = 65_507  # of a UDP datagram over IPv4
PUBLISHERS = {True: 2, False: 1}  # PublisherId by whether this side listens
WRITER_GROUP, WRITER = 100, 1
BROADCAST = b"\xff" * 6
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h; for root: beyond the limit of the system


class UadpChannel(RawChannel):
    """Unicast datagrams between the two sides.  It has no options."""

    def __init__(self, endpoint: Endpoint, listening: bool, node: str, options: dict[str, Any]) -> None:
        super().__init__(endpoint, listening, node, options)
        self._number = 0  # of the NetworkMessage
        self._peer: Any = None

    def open(self) -> None:
        """Bind the socket.  Raises OSError."""
        host = self.endpoint.host.strip("[]")
        self._socket = socket.socket(family_of(host), socket.SOCK_DGRAM)
        self._tune()
        if self.listening:
            self._socket.bind((host, self.endpoint.port))
        else:
            self._peer = (host, self.endpoint.port)
            self._send(DataSetMessage(writer_id=WRITER, keep_alive=True))  # so that the other side knows the address

    def _tune(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        with contextlib.suppress(PermissionError):
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, BUFFER)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, int(TICK_S * 1e6)))

    def settings(self) -> dict[str, Any]:
        """The buffer, as the system granted it."""
        return {"receive_buffer": self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)}

    def put(self, topic: bytes, frame: bytes | bytearray) -> None:
        """Send a NetworkMessage; before the first datagram of the other side it is lost."""
        self._number = (self._number + 1) & 0xFFFF
        field = Variant(BuiltIn.BYTE_STRING, bytes(frame))
        self._send(DataSetMessage(writer_id=WRITER, sequence_number=self._number, fields=(field,)))

    def reflect(self, octets: int, bulk: bool) -> None:
        """Start to answer; the side that connects tells its address again, should the first datagram have been lost."""
        super().reflect(octets, bulk)
        if not self.listening:
            self._send(DataSetMessage(writer_id=WRITER, keep_alive=True))

    def _send(self, data_set: DataSetMessage) -> None:
        message = NetworkMessage(
            publisher_id=PUBLISHERS[self.listening], writer_group_id=WRITER_GROUP, messages=(data_set,)
        )
        if self._peer is not None:
            with contextlib.suppress(ConnectionError, BlockingIOError):  # the other side is gone, or buffers are full
                self._socket.sendto(encode(message), self._peer)

    def get(self, wait: bool = True) -> Any:
        """The field of the next NetworkMessage."""
        try:
            octets, source = self._socket.recvfrom(MOST_OCTETS, 0 if wait else socket.MSG_DONTWAIT)
            message = decode(octets)
        except (BlockingIOError, ConnectionError, UadpError):  # nothing came, or what is no message stays unanswered
            return None
        self._heard_from(source)
        fields = message.messages[0].fields
        return fields[0].value if fields and fields[0].type == BuiltIn.BYTE_STRING else None

    def _heard_from(self, source: Any) -> None:
        if self.listening:
            self._peer = source

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class UadpEthernetChannel(UadpChannel):
    """Ethernet frames of EtherType 0xB62C, through the only interface of the namespace.  It has no options."""

    def open(self) -> None:
        """Bind the socket.  Raises ConfigurationError where it cannot be, or OSError."""
        interfaces = [name for _, name in socket.if_nameindex() if name != "lo"]
        if len(interfaces) != 1:
            raise ConfigurationError("UADP over Ethernet is for the cable between two network namespaces")
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETHER_TYPE))
        self._socket.bind((interfaces[0], ETHER_TYPE))
        self._tune()
        self._peer = (interfaces[0], ETHER_TYPE, 0, 0, BROADCAST)

    def reflect(self, octets: int, bulk: bool) -> None:
        """Answer each message: an answer to many would not fit into an Ethernet frame."""
        super().reflect(octets, False)

    def _heard_from(self, source: Any) -> None:
        """The peer is whatever is at the other end of the cable."""
