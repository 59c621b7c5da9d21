"""Messages as packets of complex samples: reading payloads, the bounded queue, gaps."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from twinlink import MalformedPayload, Message
from twinlink.spectrum import Spectrum

PayloadFormat = Literal["spectrum", "ci16", "cf32"]
PAYLOAD_FORMATS: tuple[str, ...] = get_args(PayloadFormat)

MAX_FILL = 4096  # messages of one gap that are filled with zeros; after an outage of minutes nobody wants them all
MAX_SENDERS = 64  # sessions whose sequence is remembered
OVERHEAD = 200  # octets a queued message takes besides its payload


@dataclass(slots=True)
class Packet:
    """One message's samples and what is known about them.

    Attributes:
        samples: complex64, in LSB of the sender (not scaled).
        sequence, epoch: the link's number and sender session.
        gap: messages between the packet before and this one that never came, were dropped, or could not be read.
        dropped: how many of those this side's full buffer dropped.
        filled: zeros in place of a missing message; ``sequence`` is the missing one's.
        time_ns: when it was observed (``spectrum``), else sent; Unix time, the sender's clock.
        sent_ns, received_ns: of the message.
        rate_hz, freq_hz: bandwidth of the samples and centre frequency, where the payload says.
        e3: identifiers of the E3 indication.
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


def read(message: Message, payload_format: str) -> Packet:
    """A message as a packet.  Raises MalformedPayload."""
    packet = Packet(_NOTHING, message.sequence, message.epoch, message.sent_ns, message.sent_ns, message.received_ns)
    if payload_format == "spectrum":
        spectrum = Spectrum.decode(message.payload)
        packet.samples = complex_of(spectrum.samples)
        packet.time_ns = spectrum.observed_ns
        packet.rate_hz = float(len(spectrum.samples) * spectrum.scs_hz)
        packet.freq_hz = spectrum.centre_hz
        packet.e3 = spectrum.e3
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


def complex_of(samples: NDArray[np.int16]) -> NDArray[np.complex64]:
    """int16 ``(n, 2)`` as complex64 ``(n,)``; exact, since float32 holds every int16."""
    return np.ascontiguousarray(samples, np.float32).view(np.complex64).ravel()


def int16_of(samples: NDArray[np.complex64]) -> NDArray[np.int16]:
    """complex64 ``(n,)`` as int16 ``(n, 2)``, rounded and clipped; the inverse of `complex_of`."""
    parts = np.ascontiguousarray(samples).view(np.float32).reshape(-1, 2)
    return np.asarray(np.clip(np.rint(parts), -32768, 32767), np.int16)


_NOTHING = np.zeros(0, np.complex64)


class PacketQueue:
    """Messages between the link's thread, which puts, and the flowgraph's, which takes packets.

    It holds at most ``limit`` octets.  When the flowgraph is slower than the messages come, the oldest go: a twin
    wants what is fresh.  They are counted, and the next packet says so.

    Attributes:
        dropped: messages dropped so far.
        malformed: messages whose payload could not be read.
        missing: messages that never came, or were dropped here.

    ``complain`` is called with a sentence about the first malformed payload: a sender and a block that disagree about
    the format would otherwise look like a sender that is silent.
    """

    def __init__(
        self,
        payload_format: str,
        limit: int,
        zero_fill: bool = False,
        complain: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        if payload_format not in PAYLOAD_FORMATS:
            raise ValueError(f"payload must be one of {', '.join(PAYLOAD_FORMATS)}, not {payload_format!r}")
        if limit < 1:
            raise ValueError(f"the buffer limit must be at least 1 octet, not {limit}")
        self.dropped = self.malformed = self.missing = 0
        self._complain = complain
        self._format = payload_format
        self._limit = limit
        self._zero_fill = zero_fill
        self._lock = threading.Lock()
        self._messages: deque[Message] = deque()
        self._octets = 0
        self._told = 0  # of dropped
        self._untold: dict[int, int] = {}  # epoch -> messages before the next packet of which none has told
        self._next: dict[int, int] = {}  # epoch -> sequence expected
        self._waiting: deque[Packet] = deque()
        self._last_length = 0

    def put(self, message: Message) -> None:
        """Queue a message; drops the oldest ones where the limit asks for it (never the one just put)."""
        with self._lock:
            self._messages.append(message)
            self._octets += len(message.payload) + OVERHEAD
            while self._octets > self._limit and len(self._messages) > 1:
                gone = self._messages.popleft()
                self._octets -= len(gone.payload) + OVERHEAD
                self.dropped += 1
                self._next.setdefault(gone.epoch, gone.sequence)  # or a gap at the very start would go unseen

    def take(self) -> Packet | None:
        """The next packet, or None.  Malformed payloads are counted and passed over."""
        if self._waiting:
            return self._waiting.popleft()
        while True:
            with self._lock:
                if not self._messages:
                    return None
                message = self._messages.popleft()
                self._octets -= len(message.payload) + OVERHEAD
                dropped = self.dropped
            gap = self._gap(message)
            late = message.sequence + 1 < self._next[message.epoch]  # then it was in a gap that has been told
            if not late:
                gap += self._untold.pop(message.epoch, 0)
            try:
                packet = read(message, self._format)
            except MalformedPayload as error:
                self.malformed += 1
                if self.malformed == 1:
                    self._complain(
                        f"flow {message.flow!r}: a message of {len(message.payload)} octets cannot be read as "
                        f"{self._format!r} ({error}); such messages are left out, and counted in stats(): give the "
                        "block the payload format that is sent"
                    )
                if not late:
                    self._untold[message.epoch] = gap + 1
                continue
            packet.gap, packet.dropped = gap, dropped - self._told
            self._told = dropped
            if gap and self._zero_fill:
                self._fill(packet, gap)
            self._last_length = len(packet.samples) or self._last_length
            self._waiting.append(packet)
            return self._waiting.popleft()

    def __len__(self) -> int:
        return len(self._messages) + len(self._waiting)

    def _gap(self, message: Message) -> int:
        """Messages missing before this one in its sender's session; a late one does not count twice."""
        expected = self._next.get(message.epoch)
        if expected is None:
            if len(self._next) >= MAX_SENDERS:
                self._untold.pop(oldest := next(iter(self._next)), None)
                del self._next[oldest]
            expected = message.sequence
        self._next[message.epoch] = max(expected, message.sequence + 1)
        gap = max(message.sequence - expected, 0)
        self.missing += gap
        return gap

    def _fill(self, packet: Packet, gap: int) -> None:
        length = self._last_length or len(packet.samples)
        for sequence in range(packet.sequence - min(gap, MAX_FILL), packet.sequence):
            self._waiting.append(
                Packet(
                    np.zeros(length, np.complex64),
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
