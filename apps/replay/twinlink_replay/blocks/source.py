"""Twinlink Source: converts a flow of the link to a stream of complex samples."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import twinlink

from .arguments import choice, flag, link_address, whole
from .gnuradio_compat import ThreadState, gr, keep, pmt, time_tag, wake
from .guarded_block import GuardedBlock, guarded
from .link_pool import Lease
from .packet import PAYLOAD_FORMATS, Packet, PacketQueue

BUFFER_OCTETS = 64 * 1024 * 1024
OUTPUT_SAMPLES = 128 * 1024  # 40 symbols of 273 PRBs, so that a backlog is processed in batches
_EVENTS = pmt.intern("events")
_from_long, _from_uint64, _from_double = (  # of values that are the same for many packets
    lru_cache(maxsize=64)(make) for make in (pmt.from_long, pmt.from_uint64, pmt.from_double)
)
_MAKERS: dict[str, Callable[[Any], Any]] = {
    "sequence": pmt.from_uint64,
    "epoch": _from_uint64,
    "sent_ns": pmt.from_uint64,
    "received_ns": pmt.from_uint64,
    "gap": _from_long,
    "dropped": _from_long,
}
_KEYS = {
    name: pmt.intern(name)
    for name in (
        *_MAKERS,
        "packet_len",
        "rx_time",
        "rx_freq",
        "rx_rate",
        "filled",
        "e3",
        "slot",
        "event",
        "node",
        "flow",
    )
}


class Source(GuardedBlock, gr.sync_block):  # type: ignore[misc]
    """Complex64 stream of a flow's messages, one packet a message or slot, with tags on each packet's first sample.

    The link is opened when the flowgraph starts and closed when it stops.  ``work`` never blocks: the link's thread
    queues the message and wakes the scheduler.  After `end`, or when the link cannot be opened, the flowgraph ends.

    Args:
        transport: ``zeromq``, ``zenoh``, ...
        listen: endpoint ``tcp/host:port`` to listen on, or
        connect: endpoint to connect to.
        flow: name of the flow.
        node: name of this node, or empty.
        payload: ``spectrum`` (twinlink.spectrum, twinlink.slots), ``ci16`` or ``cf32`` (samples only, little-endian,
            or a numpy array of `Sender.send_array`: complex, or int16 of shape (n, 2)).
        zero_fill: insert a packet of zeros for each missing message.
        buffer_octets: limit of the queue to the flowgraph; the oldest messages beyond it are dropped, counted and
            tagged.
        link: an open link to use instead; it stays open.
        on_message: called with each message on the link's thread.
        identity: folder of this node's identity; empty: that of ``TWINLINK_IDENTITY``, or none.

    Message port ``events`` (out): a dict for each event of the link (peer up, peer down, gap, ...).

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
        zero_fill: bool = False,
        buffer_octets: int = BUFFER_OCTETS,
        link: twinlink.Link | None = None,
        on_message: Callable[[twinlink.Message], None] | None = None,
        identity: str | os.PathLike[str] | None = None,
    ) -> None:
        address = link_address(transport, listen, connect, flow, node, link, identity)
        choice("payload", payload, PAYLOAD_FORMATS)
        flag("zero_fill", zero_fill)
        buffer_octets = whole("buffer_octets", buffer_octets, 1)
        gr.sync_block.__init__(self, name="Twinlink Source", in_sig=None, out_sig=[np.complex64])
        keep(self)
        self.set_log_level("warning")  # suppresses the info message that the next line causes
        self.set_min_output_buffer(OUTPUT_SAMPLES)
        self.message_port_register_out(_EVENTS)
        self._address = address
        self._flow = flow
        self._make_queue = partial(PacketQueue, payload, buffer_octets, zero_fill, warn=self.logger.warn)
        self._queue = self._make_queue()
        self._given = link
        self._on_message = on_message
        self._lease: Lease | None = None
        self._running = self._ended = self._woken = False
        self._rest: NDArray[np.complex64] = np.zeros(0, np.complex64)
        # Of packets without samples, to which no tag can be attached.
        self._unreported_gap = self._unreported_dropped = 0
        self._after_end = 0
        self._thread_state = ThreadState()
        self.error: Exception | None = None

    @guarded
    def start(self) -> bool:
        """Called by the scheduler."""
        self._thread_state.hold()
        self._queue = self._make_queue()
        self._rest = self._rest[:0]
        self._unreported_gap = self._unreported_dropped = self._after_end = 0
        self._ended, self.error = False, None
        self._running = True
        try:
            self._lease = Lease(self._address, self._publish, self.logger.warn, self._given)
            self._lease.read(self._flow, self._receive)
        except Exception as error:
            self.error = error
            self._ended = True
            self.logger.error(str(error))
        return True

    @guarded
    def stop(self) -> bool:
        """Called by the scheduler."""
        self._running = False
        if self._lease:
            self._lease.release()
            self._lease = None
        self._thread_state.release()
        return True

    def end(self) -> None:
        """Accept no more messages; the stream ends after the acknowledged ones."""
        if lease := self._lease:
            with contextlib.suppress(twinlink.TwinlinkError):  # the link was closed
                # Waits for the old handler, so that every acknowledged message is in the queue.
                lease.link.receiver(self._flow, handler=self._count_late)
        self._ended = True
        wake(self)

    def stats(self) -> dict[str, int]:
        """Counted since the start: messages queued, dropped, missing (dropped included), malformed, after `end`."""
        queue = self._queue
        return {
            "waiting": len(queue),
            "dropped": queue.dropped,
            "missing": queue.missing,
            "malformed": queue.malformed + self.raised,
            "after_end": self._after_end,
        }

    def handle_general_work(self, *arguments: Any) -> int:
        """Called by the scheduler, about half of the time with nothing to do; it then makes no arrays for `work`."""
        self._woken = False  # before the queue is read: a later message wakes the scheduler again
        if len(self._rest) == 0 and len(self._queue) == 0 and not self._ended:
            return 0
        count: int = super().handle_general_work(*arguments)
        return count

    def work(self, input_items: list[Any], output_items: list[NDArray[np.complex64]]) -> int:
        """Called by the scheduler."""
        out = output_items[0]
        count, start = 0, self.nitems_written(0)
        while count < len(out):
            if len(self._rest) == 0:
                try:
                    packet = self._queue.take(out[count:])
                    if packet is None:
                        break
                    self._unreported_gap += packet.gap
                    self._unreported_dropped += packet.dropped
                    if len(packet.samples) == 0:
                        continue  # no sample for a tag: the next packet reports the gap
                    packet.gap, packet.dropped = self._unreported_gap, self._unreported_dropped
                    self._tag(start + count, self._tags(packet))
                except Exception as error:  # the input of a source: what came before it is not lost
                    self._unreported_gap += 1
                    self._on_exception(error, "the message is left out, and the next taken")
                    continue
                self._unreported_gap = self._unreported_dropped = 0
                if packet.in_place:
                    count += len(packet.samples)
                    continue
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

    def _tag(self, offset: int, tags: dict[str, Any]) -> None:
        add = partial(self.gateway.add_item_tag, 0, offset)
        for name, value in tags.items():
            add(_KEYS[name], value)

    def _tags(self, packet: Packet) -> dict[str, Any]:
        """All tags of a packet, before the first is added: a value of a peer may have no PMT."""
        tags = {"packet_len": _from_long(len(packet.samples)), "rx_time": time_tag(packet.time_ns)}
        for name, make in _MAKERS.items():
            tags[name] = make(getattr(packet, name))
        if packet.freq_hz is not None:
            tags["rx_freq"] = _from_double(packet.freq_hz)
        if packet.rate_hz is not None:
            tags["rx_rate"] = _from_double(packet.rate_hz)
        if packet.filled:
            tags["filled"] = pmt.PMT_T
        if packet.e3:
            tags["e3"] = pmt.to_pmt(packet.e3)
        if packet.slot:
            tags["slot"] = _slot_tag(packet.slot)
        return tags


def _slot_tag(slot: dict[str, int]) -> Any:
    """As ``pmt.to_pmt``, in a fifth of its time: the fields that do not change from slot to slot are converted once."""
    names, values = tuple(slot), tuple(slot.values())
    tag = _slot_base(names[_CHANGING:], values[_CHANGING:])
    for name, value in zip(names[:_CHANGING], values[:_CHANGING], strict=True):
        tag = pmt.dict_add(tag, _field(name), pmt.from_long(value))
    return tag


@lru_cache(maxsize=16)
def _slot_base(names: tuple[str, ...], values: tuple[int, ...]) -> Any:
    return pmt.to_pmt(dict(zip(names, values, strict=True)))


_CHANGING = 3  # the first fields of a slot: sfn, slot, timestamp
_field = lru_cache(maxsize=64)(pmt.intern)
