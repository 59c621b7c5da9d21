"""Packets of complex samples: payload decoding, the bounded queue, gap detection."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from twinlink import MalformedPayload, Message
from twinlink.npy import Array
from twinlink.slots import CompressionMissing, Content, Slot, SlotSpectrum, is_slots
from twinlink.spectrum import SUBCARRIERS_PER_PRB, Spectrum
from twinlink.text_payload import is_array

PayloadFormat = Literal["spectrum", "ci16", "cf32"]
PAYLOAD_FORMATS: tuple[str, ...] = get_args(PayloadFormat)
OCTET_FORMATS = ("u8", "text")  # without samples: any octets, and UTF-8

MAX_FILL = 4096  # messages of one gap that are filled with zeros; an outage of minutes would stall the flowgraph
MAX_SENDERS = 64  # sessions with a tracked sequence
OVERHEAD = 200  # octets of memory of a queued message besides its payload


@dataclass(slots=True)
class Packet:
    """The samples and metadata of one message, or of one slot of a message of whole slots.

    Attributes:
        samples: complex64, shape ``(n,)``, in LSB of the sender (not scaled); none of a payload of `OCTET_FORMATS`.
            Of a slot: antenna after antenna, symbol after symbol; or power per PRB in LSB^2, as the real part.
        sequence, epoch: the message's sequence number and the sender's session.
        gap: messages between the previous packet and this one that are missing, were dropped, or cannot be decoded,
            and slots that the sender could not read.
        dropped: number of those that the full queue on this side dropped.
        filled: True for zeros in place of a missing message; ``sequence`` is that of the missing message.
        time_ns: Unix time of the observation (``spectrum``), otherwise of sending, by the sender's clock.
        sent_ns, received_ns: Unix times of the message.
        rate_hz, freq_hz: bandwidth of the samples and centre frequency; None if the payload does not contain them.
        e3: identifiers of the E3 indication.
        slot: what describes a slot: its time by the gNB's clock, which part of it is there, and as what; empty for
            other messages.  ``symbols`` and ``antennas`` are masks; ``content`` and ``clock`` numbers of
            `twinlink.slots`.
        octets: a payload of `OCTET_FORMATS`, unchanged.
        source: message and slot, until `make_samples` makes the samples of them; None for other messages.
        in_place: the samples are in the array that `PacketQueue.take` was given.
    """

    samples: NDArray[np.complex64]
    sequence: int
    epoch: int
    time_ns: int
    sent_ns: int
    received_ns: int
    gap: int = 0
    dropped: int = 0
    filled: bool = False
    rate_hz: float | None = None
    freq_hz: float | None = None
    e3: dict[str, int] = field(default_factory=dict)
    slot: dict[str, int] = field(default_factory=dict)
    octets: bytes = b""
    source: tuple[SlotSpectrum, Slot] | None = None
    in_place: bool = False

    def make_samples(self, out: NDArray[np.complex64] | None) -> None:
        """Make the samples of ``source``, in ``out`` if they fit there."""
        if self.source is None:
            return
        (spectrum, slot), self.source = self.source, None
        if spectrum.content is not Content.IQ:
            self.samples = spectrum.power(slot).astype(np.complex64).ravel()
            return
        count = slot.data.size // 2
        self.in_place = out is not None and len(out) >= count
        self.samples = out[:count] if out is not None and self.in_place else np.empty(count, np.complex64)
        spectrum.in_lsb(slot, self.samples.view(np.float32).reshape(slot.data.shape))


def read(message: Message, payload_format: str) -> list[Packet]:
    """Decode a message, see `PAYLOAD_FORMATS` and `OCTET_FORMATS`: a packet, or one for each slot.

    Raises MalformedPayload, CompressionMissing.
    """
    if payload_format == "spectrum" and is_slots(message.payload):
        spectrum = SlotSpectrum.decode(message.payload)
        common = _common_fields(spectrum)
        return [_read_slot(message, spectrum, slot, common) for slot in spectrum.slots]
    return [_read_whole(message, payload_format)]


def _read_slot(message: Message, spectrum: SlotSpectrum, slot: Slot, common: dict[str, int]) -> Packet:
    prb_hz = spectrum.scs_hz * SUBCARRIERS_PER_PRB
    from_centre = spectrum.first_prb + (spectrum.n_prbs - spectrum.n_prbs_carrier) / 2
    return Packet(
        _NOTHING,
        message.sequence,
        message.epoch,
        slot.observed_ns,
        message.sent_ns,
        message.received_ns,
        gap=slot.missing,
        rate_hz=float(spectrum.n_prbs * prb_hz),
        freq_hz=spectrum.centre_hz + from_centre * prb_hz,
        slot={
            "sfn": slot.sfn,
            "slot": slot.slot,
            "timestamp": slot.gnb_ns,
            "clock": int(slot.clock),
            "symbols": slot.symbols,
            **common,
        },
        source=(spectrum, slot),
    )


def _common_fields(spectrum: SlotSpectrum) -> dict[str, int]:
    """What the slots of a message have in common."""
    return {
        "antennas": sum(1 << antenna for antenna in spectrum.antennas),
        "first_prb": spectrum.first_prb,
        "n_prbs": spectrum.n_prbs,
        "n_prbs_carrier": spectrum.n_prbs_carrier,
        "content": int(spectrum.content),
        "slot_mean": int(spectrum.slot_mean),
        "every": spectrum.every,
        "scs_hz": spectrum.scs_hz,
    }


def _read_whole(message: Message, payload_format: str) -> Packet:
    packet = Packet(_NOTHING, message.sequence, message.epoch, message.sent_ns, message.sent_ns, message.received_ns)
    if payload_format == "spectrum":
        spectrum = Spectrum.decode(message.payload)
        packet.samples = complex_of(spectrum.samples)
        packet.time_ns = spectrum.observed_ns
        packet.rate_hz = float(len(spectrum.samples) * spectrum.scs_hz)
        packet.freq_hz = spectrum.centre_hz
        packet.e3 = spectrum.e3
        return packet
    if payload_format in OCTET_FORMATS:
        packet.octets = bytes(message.payload)
        if payload_format == "text":
            _check_text(packet.octets)
        return packet
    if is_array(message.payload):
        packet.samples = _samples_of(message.array())
        return packet
    size = 4 if payload_format == "ci16" else 8
    if len(message.payload) % size:
        raise MalformedPayload(
            f"{payload_format} samples take {size} octets each, the payload has {len(message.payload)}"
        )
    if payload_format == "ci16":
        packet.samples = complex_of(np.frombuffer(message.payload, "<i2").reshape(-1, 2))
    else:
        packet.samples = np.frombuffer(message.payload, "<c8").astype(np.complex64, copy=False)
    return packet


def _samples_of(array: Array) -> NDArray[np.complex64]:
    """The samples of an array, which says itself whether they are complex or pairs of int16; in C order.

    Raises MalformedPayload.
    """
    if array.dtype.kind == "c":
        with np.errstate(over="ignore"):  # beyond the range of complex64 a sample is infinite
            return np.ascontiguousarray(array, np.complex64).ravel()
    if array.dtype.newbyteorder("=") == np.int16 and array.shape[-1:] == (2,):
        return complex_of(array)
    raise MalformedPayload(
        f"an array of dtype {array.dtype} and shape {array.shape} holds no complex samples; "
        "send a complex one, or int16 of shape (n, 2)"
    )


def _check_text(octets: bytes) -> None:
    try:
        octets.decode()
    except UnicodeDecodeError as error:
        raise MalformedPayload(f"the payload is not UTF-8: {error}") from None


def complex_of(samples: NDArray[np.int16]) -> NDArray[np.complex64]:
    """int16 ``(n, 2)`` as complex64 ``(n,)``; exact, since float32 holds every int16."""
    return np.ascontiguousarray(samples, np.float32).view(np.complex64).ravel()


def int16_of(samples: NDArray[np.complex64]) -> NDArray[np.int16]:
    """complex64 ``(n,)`` as int16 ``(n, 2)``, rounded and clipped; the inverse of `complex_of`."""
    parts = np.ascontiguousarray(samples).view(np.float32).reshape(-1, 2)
    return np.asarray(np.clip(np.rint(parts), -32768, 32767), np.int16)


_NOTHING = np.zeros(0, np.complex64)


class PacketQueue:
    """Queue from the link's thread, which puts messages, to the flowgraph's thread, which takes packets.

    When the flowgraph is slower than the messages arrive, the queue drops the oldest messages: a twin needs fresh data.
    It counts them, and the next packet reports them.

    Args:
        payload_format: one of `PAYLOAD_FORMATS` or `OCTET_FORMATS`.
        limit: size of the queue in octets, from 1.
        zero_fill: insert a packet of zeros for each missing message.
        warn: called with a message about the first malformed payload; otherwise a sender with another payload format
            would look like a silent one.

    Attributes:
        dropped: number of messages dropped.
        malformed: number of messages with a payload that cannot be decoded.
        missing: number of messages that did not arrive, or were dropped here.
    """

    def __init__(
        self,
        payload_format: str,
        limit: int,
        zero_fill: bool = False,
        warn: Callable[[str], object] = lambda text: None,
    ) -> None:
        self.dropped = self.malformed = self.missing = 0
        self._warn = warn
        self._format = payload_format
        self._limit = limit
        self._zero_fill = zero_fill
        self._lock = threading.Lock()
        self._messages: deque[Message] = deque()
        self._octets = 0
        self._reported_dropped = 0
        self._unreported: dict[int, int] = {}  # epoch -> missing or malformed messages that no packet has reported
        self._next: dict[int, int] = {}  # epoch -> expected sequence
        self._waiting: deque[Packet] = deque()
        self._last_length = 0

    def put(self, message: Message) -> None:
        """Queue a message; beyond the limit, drop the oldest ones, but never this one."""
        with self._lock:
            self._messages.append(message)
            self._octets += len(message.payload) + OVERHEAD
            while self._octets > self._limit and len(self._messages) > 1:
                gone = self._messages.popleft()
                self._octets -= len(gone.payload) + OVERHEAD
                self.dropped += 1
                self._next.setdefault(gone.epoch, gone.sequence)  # otherwise a gap at the start would not be detected

    def take(self, out: NDArray[np.complex64] | None = None) -> Packet | None:
        """The next packet, or None.  Malformed payloads are counted and skipped.

        Args:
            out: where the samples of a slot are written if they fit, which saves a copy; see `Packet.in_place`.
        """
        if self._waiting:
            return self._hand_over(out)
        while True:
            with self._lock:
                if not self._messages:
                    return None
                message = self._messages.popleft()
                self._octets -= len(message.payload) + OVERHEAD
                dropped = self.dropped
            gap = self._gap(message)
            late = message.sequence + 1 < self._next[message.epoch]  # then it was part of a reported gap
            if not late:
                gap += self._unreported.pop(message.epoch, 0)
            try:
                packets = read(message, self._format)
            except (MalformedPayload, CompressionMissing) as error:
                self.malformed += 1
                if self.malformed == 1:
                    self._warn_of(message, error)
                if not late:
                    self._unreported[message.epoch] = gap + 1
                continue
            packet = packets[0]
            self.missing += sum(slot.gap for slot in packets)  # of slots
            packet.gap, packet.dropped = packet.gap + gap, dropped - self._reported_dropped
            self._reported_dropped = dropped
            if gap and self._zero_fill:
                self._fill(packet, gap)
            self._waiting += packets
            return self._hand_over(out)

    def _hand_over(self, out: NDArray[np.complex64] | None) -> Packet:
        packet = self._waiting.popleft()
        packet.make_samples(out)
        self._last_length = len(packet.samples) or self._last_length
        return packet

    def __len__(self) -> int:
        return len(self._messages) + len(self._waiting)

    def _warn_of(self, message: Message, error: MalformedPayload | CompressionMissing) -> None:
        made_by = " (twinlink.spectrum.Spectrum(...).encode())" if self._format == "spectrum" else ""
        sent = "that is sent"
        if self._format in {"spectrum", "text"} and is_array(message.payload):
            sent += ", 'cf32' for a numpy array of complex samples"
        self._warn(
            f"flow {message.flow!r}: a message of {len(message.payload)} octets cannot be decoded as "
            f"{self._format!r} ({error}); such messages are skipped and counted in stats(): "
            f"send {self._format!r}{made_by}, or give the block the payload format {sent}"
        )

    def _gap(self, message: Message) -> int:
        """Messages missing before this one in its sender's session; a late message does not count twice."""
        expected = self._next.get(message.epoch)
        if expected is None:
            if len(self._next) >= MAX_SENDERS:
                self._unreported.pop(oldest := next(iter(self._next)), None)
                del self._next[oldest]
            expected = message.sequence
        self._next[message.epoch] = max(expected, message.sequence + 1)
        gap = max(message.sequence - expected, 0)
        self.missing += gap
        return gap

    def _fill(self, packet: Packet, gap: int) -> None:
        if not self._last_length:
            packet.make_samples(None)
        zeros = np.zeros(self._last_length or len(packet.samples), np.complex64)  # one for all: they may be many
        for sequence in range(packet.sequence - min(gap, MAX_FILL), packet.sequence):
            self._waiting.append(
                Packet(
                    zeros,
                    sequence,
                    packet.epoch,
                    packet.time_ns,
                    packet.sent_ns,
                    packet.received_ns,
                    filled=True,
                    rate_hz=packet.rate_hz,
                    freq_hz=packet.freq_hz,
                )
            )
