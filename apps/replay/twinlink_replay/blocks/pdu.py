"""Twinlink PDU Source and Sink: convert between a flow of the link and GNU Radio PDUs."""

import os
import struct
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import twinlink

from .arguments import choice, link_address
from .gnuradio_compat import gr, keep, pmt, time_tag
from .guarded_block import GuardedBlock, guarded
from .link_pool import Lease
from .packet import OCTET_FORMATS, PAYLOAD_FORMATS, Packet, PacketQueue, int16_of
from .sink_sender import SinkSender
from .source import BUFFER_OCTETS

VECTORS = ("complex", "s16")
_PDUS = pmt.intern("pdus")


class PduSource(GuardedBlock, gr.basic_block):  # type: ignore[misc]
    """Publishes each message of a flow as a PDU on port ``pdus``: a dict, and a vector or a symbol.

    The dict holds packet_len, rx_time, rx_freq, rx_rate (where known), sequence, epoch, sent_ns, received_ns, gap,
    flow, e3, and slot (of whole slots).  PDUs are published from the link's thread; GNU Radio limits the queue of a
    message port.

    Args:
        transport, listen, connect, flow, node, link, identity: as of `Source`.
        payload: as of `Source`; ``u8`` (any octets, as a u8vector), or ``text`` (UTF-8, as a symbol, of which GNU Radio
            keeps each different one in memory).
        vector: of samples: ``complex`` (c32vector) or ``s16`` (interleaved I and Q).

    Raises ConfigurationError or TransportMissing for arguments with which it cannot start.
    """

    def __init__(
        self,
        transport: str = "zeromq",
        listen: str | None = None,
        connect: str | None = None,
        flow: str = "spectrum",
        node: str | None = None,
        payload: str = "spectrum",
        vector: str = "complex",
        link: twinlink.Link | None = None,
        identity: str | os.PathLike[str] | None = None,
    ) -> None:
        address = link_address(transport, listen, connect, flow, node, link, identity)
        choice("payload", payload, PAYLOAD_FORMATS + OCTET_FORMATS)
        choice("vector", vector, VECTORS)
        gr.basic_block.__init__(self, name="Twinlink PDU Source", in_sig=None, out_sig=None)
        keep(self)
        self.message_port_register_out(_PDUS)
        self._address = address
        self._flow, self._vector = flow, payload if payload in OCTET_FORMATS else vector
        self._make_queue = partial(PacketQueue, payload, BUFFER_OCTETS, warn=self.logger.warn)
        self._queue = self._make_queue()
        self._given = link
        self._lease: Lease | None = None
        self._running = False
        self.error: Exception | None = None

    @guarded
    def start(self) -> bool:
        """Called by the scheduler."""
        self._queue = self._make_queue()
        self._running, self.error = True, None
        try:
            self._lease = Lease(self._address, lambda event: None, self.logger.warn, self._given)
            self._lease.read(self._flow, self._receive)
        except Exception as error:
            self.error = error
            self.logger.error(str(error))
        return True

    @guarded
    def stop(self) -> bool:
        """Called by the scheduler."""
        self._running = False
        if self._lease:
            self._lease.release()
            self._lease = None
        return True

    def stats(self) -> dict[str, int]:
        """Counted since the start: missing messages, and payloads that cannot be decoded."""
        return {"missing": self._queue.missing, "malformed": self._queue.malformed + self.raised}

    def _receive(self, message: twinlink.Message) -> None:
        """On the link's thread."""
        if not self._running:
            return
        self._queue.put(message)
        while len(self._queue):
            try:
                if (packet := self._queue.take()) is not None:
                    self.message_port_pub(_PDUS, pmt.cons(self._meta(packet), self._body(packet)))
            except Exception as error:
                self._on_exception(error, "the message is left out, and the next taken")

    def _body(self, packet: Packet) -> Any:
        if self._vector == "u8":
            return pmt.init_u8vector(len(packet.octets), list(packet.octets))
        if self._vector == "text":
            return pmt.intern(packet.octets.decode())
        if self._vector == "complex":
            return pmt.init_c32vector(len(packet.samples), packet.samples)
        values = int16_of(packet.samples).ravel()
        return pmt.init_s16vector(len(values), values)

    def _meta(self, packet: Packet) -> Any:
        meta = pmt.make_dict()
        fields = {
            "packet_len": pmt.from_long(len(packet.octets) or len(packet.samples)),
            "rx_time": time_tag(packet.time_ns),
            "sequence": pmt.from_uint64(packet.sequence),
            "epoch": pmt.from_uint64(packet.epoch),
            "sent_ns": pmt.from_uint64(packet.sent_ns),
            "received_ns": pmt.from_uint64(packet.received_ns),
            "gap": pmt.from_long(packet.gap),
            "flow": pmt.intern(self._flow),
            "e3": pmt.to_pmt(packet.e3),
        }
        if packet.freq_hz is not None:
            fields["rx_freq"] = pmt.from_double(packet.freq_hz)
        if packet.rate_hz is not None:
            fields["rx_rate"] = pmt.from_double(packet.rate_hz)
        if packet.slot:
            fields["slot"] = pmt.to_pmt(packet.slot)
        for name, value in fields.items():
            meta = pmt.dict_add(meta, pmt.intern(name), value)
        return meta


class PduSink(GuardedBlock, gr.basic_block):  # type: ignore[misc]
    """Sends the PDUs and symbols of port ``pdus`` on a flow.

    A PDU's vector, of any type, is sent as its octets (little-endian): u8 unchanged, c32 as ``cf32``, s16 as ``ci16``.
    A symbol (text, such as the JSON of a decision) is sent as UTF-8.  Anything else is refused, and counted.

    Args:
        transport, listen, connect, flow, node, link, identity: as of `Source`.

    Raises ConfigurationError or TransportMissing for arguments with which it cannot start.
    """

    def __init__(
        self,
        transport: str = "zeromq",
        listen: str | None = None,
        connect: str | None = None,
        flow: str = "control",
        node: str | None = None,
        link: twinlink.Link | None = None,
        identity: str | os.PathLike[str] | None = None,
    ) -> None:
        address = link_address(transport, listen, connect, flow, node, link, identity)
        gr.basic_block.__init__(self, name="Twinlink PDU Sink", in_sig=None, out_sig=None)
        keep(self)
        self._sending = SinkSender(self.logger, address, flow, link)
        self.message_port_register_in(_PDUS)
        self.set_msg_handler(_PDUS, self._handle)

    @guarded
    def start(self) -> bool:
        """Called by the scheduler."""
        self._sending.open()
        return True

    @guarded
    def stop(self) -> bool:
        """Called by the scheduler."""
        self._sending.close()
        return True

    def stats(self) -> dict[str, int]:
        """Number of messages sent, and of PDUs that could not be sent."""
        return {"sent": self._sending.sent, "failed": self._sending.failed + self.raised}

    @guarded
    def _handle(self, pdu: Any) -> None:
        try:
            payload = octets_of(pmt.cdr(pdu) if pmt.is_pair(pdu) else pdu)
        except ValueError as error:
            self._sending.refuse(error)
        else:
            self._sending.send(payload)


def octets_of(value: Any) -> bytes:
    """The octets of a uniform vector or a symbol.  Raises ValueError for any other value."""
    if pmt.is_symbol(value):
        try:
            return str(pmt.symbol_to_string(value)).encode()
        except UnicodeDecodeError as error:
            raise ValueError(f"a symbol that is no UTF-8 cannot be sent ({error}): use a u8vector") from error
    if not pmt.is_uniform_vector(value):
        raise ValueError("a PDU of this kind cannot be sent: use a uniform vector or a symbol")
    # Not to_python, which knows no s8, s64 and u64.  Serialised: 10, type, count (32 bits), octets of padding, padding.
    octets = pmt.serialize_str(value)
    _, kind, count, padding = _VECTOR_HEAD.unpack_from(octets)
    elements: NDArray[Any] = np.ndarray(count, f">{_ELEMENTS[kind]}", octets, _VECTOR_HEAD.size + padding)
    return elements.astype(f"<{_ELEMENTS[kind]}").tobytes()


_VECTOR_HEAD = struct.Struct(">BBIB")
_ELEMENTS = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8", "c8", "c16")  # by the number of their type
