"""Twinlink Source: a flow of the link as a stream of complex samples."""

import contextlib
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import twinlink
from twinlink.appkit.console import log

from .gnuradio_compat import gr, keep, pmt, time_tag, wake
from .link_pool import Address, Lease
from .packet import Packet, PacketQueue

BUFFER_OCTETS = 64 * 1024 * 1024
OUTPUT_SAMPLES = 128 * 1024  # so that a backlog moves on in batches: 40 symbols of 273 PRBs
_EVENTS = pmt.intern("events")
_MAKERS: dict[str, Callable[[Any], Any]] = {
    "sequence": pmt.from_uint64,
    "epoch": pmt.from_uint64,
    "sent_ns": pmt.from_uint64,
    "received_ns": pmt.from_uint64,
    "gap": pmt.from_long,
    "dropped": pmt.from_long,
}
_KEYS = {
    name: pmt.intern(name)
    for name in (*_MAKERS, "packet_len", "rx_time", "rx_freq", "rx_rate", "filled", "e3", "event", "node", "flow")
}


class Source(gr.sync_block):  # type: ignore[misc]
    """Complex64 stream of a flow's messages, one packet a message, with tags on each packet's first sample.

    The link is opened when the flowgraph starts and closed when it stops.  ``work`` never waits: the link's thread
    queues the message and wakes the scheduler.  After `end`, or when the link cannot be opened, the flowgraph ends.

    Args:
        transport: ``zeromq``, ``zenoh``, ...
        listen: endpoint ``tcp/host:port`` to listen on, or
        connect: endpoint to connect to.
        flow: name of the flow.
        node: this side's name, or empty.
        payload: ``spectrum`` (twinlink.spectrum), ``ci16`` or ``cf32`` (nothing but samples, little-endian).
        zero_fill: put a packet of zeros in place of each missing message.
        buffer_octets: what may wait for the flowgraph; beyond it the oldest messages are dropped, counted and tagged.
        link: use this open link instead, which stays open.
        on_message: called with each message as it comes, on the link's thread.

    Message port ``events`` (out): a dict for each event of the link (peer up, peer down, gap, ...).
    """

    def __init__(
        self,
        transport: str = "zeromq",
        listen: str | None = None,
        connect: str | None = None,
        flow: str = "spectrum",
        node: str | None = None,
        payload: str = "spectrum",
        zero_fill: bool = False,
        buffer_octets: int = BUFFER_OCTETS,
        link: twinlink.Link | None = None,
        on_message: Callable[[twinlink.Message], None] | None = None,
    ) -> None:
        gr.sync_block.__init__(self, name="Twinlink Source", in_sig=None, out_sig=[np.complex64])
        keep(self)
        self.set_log_level("warning")  # the next line is announced on stdout otherwise
        self.set_min_output_buffer(OUTPUT_SAMPLES)
        self.message_port_register_out(_EVENTS)
        self._address = Address(transport, listen, connect, node or None)
        self._flow = flow
        self._make_queue = partial(
            PacketQueue, payload, buffer_octets, zero_fill, complain=partial(log, "Twinlink Source")
        )
        self._queue = self._make_queue()
        self._given = link
        self._on_message = on_message
        self._lease: Lease | None = None
        self._running = self._ended = self._woken = False
        self._rest: NDArray[np.complex64] = np.zeros(0, np.complex64)
        self._untold_gap = self._untold_dropped = 0  # of packets without samples
        self._after_end = 0
        self.error: Exception | None = None

    def start(self) -> bool:
        """Called by the scheduler."""
        self._queue = self._make_queue()
        self._rest = self._rest[:0]
        self._untold_gap = self._untold_dropped = self._after_end = 0
        self._ended, self.error = False, None
        self._running = True
        try:
            self._lease = Lease(self._address, self._publish, self._given)
            self._lease.read(self._flow, self._receive)
        except (twinlink.TwinlinkError, ValueError) as error:
            self.error = error
            self._ended = True
            log("Twinlink Source", str(error))
        return True

    def stop(self) -> bool:
        """Called by the scheduler."""
        self._running = False
        if self._lease:
            self._lease.release()
            self._lease = None
        return True

    def end(self) -> None:
        """Take no more messages; the stream ends after those that have been acknowledged."""
        if lease := self._lease:
            with contextlib.suppress(twinlink.TwinlinkError):  # it was closed
                lease.link.receiver(self._flow, handler=self._count_late)  # while none is between its ack and the queue
        self._ended = True
        wake(self)

    def stats(self) -> dict[str, int]:
        """Counted since the start: messages waiting, dropped, missing (dropped included), malformed, after `end`."""
        queue = self._queue
        return {
            "waiting": len(queue),
            "dropped": queue.dropped,
            "missing": queue.missing,
            "malformed": queue.malformed,
            "after_end": self._after_end,
        }

    def work(self, input_items: list[Any], output_items: list[NDArray[np.complex64]]) -> int:
        """Called by the scheduler."""
        self._woken = False  # before looking at the queue: what comes from now on wakes us again
        out = output_items[0]
        count = 0
        while count < len(out):
            if len(self._rest) == 0:
                packet = self._queue.take()
                if packet is None:
                    break
                self._untold_gap += packet.gap
                self._untold_dropped += packet.dropped
                if len(packet.samples) == 0:
                    continue  # nothing that could carry a tag: the next packet tells
                packet.gap, packet.dropped = self._untold_gap, self._untold_dropped
                self._untold_gap = self._untold_dropped = 0
                self._tag(self.nitems_written(0) + count, packet)
                self._rest = packet.samples
            part = self._rest[: len(out) - count]
            out[count : count + len(part)] = part
            self._rest = self._rest[len(part) :]
            count += len(part)
        if count == 0 and self._ended and len(self._queue) == 0:
            return -1
        return count

    def _receive(self, message: twinlink.Message) -> None:
        """On the link's thread."""
        if not self._running:
            self._count_late(message)
            return
        if self._on_message:
            self._on_message(message)
        self._queue.put(message)
        if not self._woken:
            self._woken = True
            wake(self)

    def _count_late(self, message: twinlink.Message) -> None:
        """On the link's thread."""
        if self._on_message:
            self._on_message(message)
        self._after_end += 1

    def _publish(self, event: twinlink.Event) -> None:
        fields = {"event": type(event).__name__, **asdict(event)}
        self.message_port_pub(_EVENTS, pmt.to_pmt({name: str(value) for name, value in fields.items()}))

    def _tag(self, offset: int, packet: Packet) -> None:
        self.add_item_tag(0, offset, _KEYS["packet_len"], pmt.from_long(len(packet.samples)))
        self.add_item_tag(0, offset, _KEYS["rx_time"], time_tag(packet.time_ns))
        for name, make in _MAKERS.items():
            self.add_item_tag(0, offset, _KEYS[name], make(getattr(packet, name)))
        if packet.freq_hz is not None:
            self.add_item_tag(0, offset, _KEYS["rx_freq"], pmt.from_double(packet.freq_hz))
        if packet.rate_hz is not None:
            self.add_item_tag(0, offset, _KEYS["rx_rate"], pmt.from_double(packet.rate_hz))
        if packet.filled:
            self.add_item_tag(0, offset, _KEYS["filled"], pmt.PMT_T)
        if packet.e3:
            self.add_item_tag(0, offset, _KEYS["e3"], pmt.to_pmt(packet.e3))
