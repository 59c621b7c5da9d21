"""Twinlink Stream Sink: sends a tagged stream on a flow of the link."""

import os
from typing import Any

import numpy as np

import twinlink
from twinlink.protocol.frames import MAX_PAYLOAD

from .arguments import choice, link_address
from .assembler import PacketAssembler
from .gnuradio_compat import gr, keep
from .guarded_block import GuardedBlock, guarded
from .packet import int16_of
from .sink_sender import SinkSender


class StreamSink(GuardedBlock, gr.sync_block):  # type: ignore[misc]
    """Sends a stream that has ``packet_len`` tags, one message a packet.

    Args:
        transport, listen, connect, flow, node, link, identity: as of `Source`.
        payload: ``cf32``, or ``ci16`` (rounded and clipped).

    Raises ConfigurationError or TransportMissing for arguments with which it cannot start.
    """

    def __init__(
        self,
        transport: str = "zeromq",
        listen: str | None = None,
        connect: str | None = None,
        flow: str = "twin",
        node: str | None = None,
        payload: str = "cf32",
        link: twinlink.Link | None = None,
        identity: str | os.PathLike[str] | None = None,
    ) -> None:
        address = link_address(transport, listen, connect, flow, node, link, identity)
        choice("payload", payload, ("cf32", "ci16"))
        gr.sync_block.__init__(self, name="Twinlink Stream Sink", in_sig=[np.complex64], out_sig=None)
        keep(self)
        self._payload = payload
        self._sending = SinkSender(self.logger, address, flow, link)
        self._packets = self._assembler()

    def _assembler(self) -> PacketAssembler:
        sample_octets = 8 if self._payload == "cf32" else 4
        return PacketAssembler(self._sending.refuse, MAX_PAYLOAD // sample_octets)

    @guarded
    def start(self) -> bool:
        """Called by the scheduler."""
        self._packets = self._assembler()
        self._sending.open()
        return True

    @guarded
    def stop(self) -> bool:
        """Called by the scheduler."""
        self._sending.close()
        return True

    def stats(self) -> dict[str, int]:
        """Number of messages sent, of failures, and of samples outside of any packet."""
        return {
            "sent": self._sending.sent,
            "failed": self._sending.failed + self.raised,
            "untagged_samples": self._packets.untagged,
        }

    def work(self, input_items: list[Any], output_items: list[Any]) -> int:
        """Called by the scheduler."""
        count = len(input_items[0])
        for samples, _ in self._packets.add(self, input_items[0]):
            payload = samples if self._payload == "cf32" else int16_of(samples)
            self._sending.send(payload.tobytes())
        return count
