"""Interface of a subject's end, which sends numbered messages and answers those of the other end."""

import contextlib
import secrets
import threading
import time
from abc import ABC, abstractmethod
from typing import Any

from twinlink.process.guarded_thread import GuardedThread
from twinlink.transports import Endpoint

from ..frames import (
    ACK_ONE,
    ACK_ONE_LENGTH,
    ACK_WORD,
    DATA_WORD,
    HEADER,
    HEADER_OCTETS,
    MAX_BATCH,
    MAX_PAYLOAD,
    ack,
    parse_ack,
)
from ..loss_injector import is_dropped
from ..row_buffer import ReceivedRows, SentRows

FLOW = "sweep"
TRAFFIC, ACK = f"traffic/{FLOW}".encode(), f"ack/{FLOW}".encode()
TICK_S = 0.02  # the longest that a receive may block in its library
PROBE_S = 0.05  # between two unanswered probes
MAX_FRAME = HEADER_OCTETS + MAX_PAYLOAD  # of any program that connects: the links of a sweep know no peers
UNANSWERED = 2  # messages in a row, after which the peer is lost

_time_ns, _monotonic_ns = time.time_ns, time.monotonic_ns
_unpack, _pack_ack, _unpack_ack = HEADER.unpack_from, ACK_ONE.pack, ACK_ONE.unpack


class PeerLost(Exception):
    """The other end no longer answers; the message says how that showed."""


class Channel(ABC):
    """One end of a subject.  It sends or reflects; the roles may change between cells, not within one.

    Attributes:
        rows: the sender's records of messages and answers.
        received: the reflector's records of arrivals.
        next: the number of the next message.
        broker_pid: process id of the broker that this end started, if any.
        receives: whether this end, as the reflector, has the messages, and so records arrivals.
    """

    broker_pid: int | None = None
    receives = True

    def __init__(self, endpoint: Endpoint, listening: bool, node: str, options: dict[str, Any]) -> None:
        self.endpoint = endpoint
        self.listening = listening
        self.node = node
        self.options = options
        self.rows = SentRows(0, 0)
        self.received = ReceivedRows(0)
        self.next = 0
        self.drop_every = 0  # every nth message sent is withheld from the wire: a known loss

    @abstractmethod
    def open(self) -> None:
        """Listen or connect.  Raises TwinlinkError or OSError."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The options in effect, ready for JSON."""

    # The sender

    @abstractmethod
    def wait_ready(self, timeout_s: float) -> None:
        """Return when the other end answers.  Raises PeerLost."""

    @abstractmethod
    def load(self, octets: int) -> None:
        """Prepare a payload of this size."""

    @abstractmethod
    def send(self, scheduled_ns: int = 0) -> None:
        """Send the next message; ``scheduled_ns`` is its scheduled send time, 0 for now."""

    @abstractmethod
    def exchange(self, timeout_s: float) -> bool:
        """Send the next message and return when it is answered; False if that is not in time."""

    @abstractmethod
    def collect(self) -> None:
        """Start to record answers in the background, until `settle`."""

    @abstractmethod
    def settle(self, quiet_s: float, cancelled: threading.Event) -> None:
        """Return when every message is answered, or no answer came for ``quiet_s`` seconds."""

    def peer_gone(self) -> str | None:
        """Evidence that the peer is lost; None without any."""
        return None

    # The reflector

    @abstractmethod
    def reflect(self, octets: int, bulk: bool) -> None:
        """Start to answer messages of about this size, and to record them in ``received``, until `stop`.

        ``bulk``: they come without pauses, and one answer may acknowledge several.
        """

    @abstractmethod
    def stop(self) -> None:
        """End `reflect`."""

    def counters(self) -> dict[str, int] | None:
        """Counters of this end since it was opened; None if it keeps none."""
        return None


class RawChannel(Channel):
    """A bare library: stamps, numbers and answers like a link, but keeps no state, checks nothing and repairs nothing.

    A backend fills `open`, `close`, `settings`, `put` and `get`.  `put` and `get` may be called by two threads.

    Attributes:
        expected: octets of incoming payloads; 0 while only answers come.
    """

    expected = 0

    def __init__(self, endpoint: Endpoint, listening: bool, node: str, options: dict[str, Any]) -> None:
        super().__init__(endpoint, listening, node, options)
        self._epoch = secrets.randbits(64)
        self._frame = bytearray(HEADER_OCTETS)
        self._octets = 0
        self._answers = 0
        self._thread: GuardedThread | None = None
        self._ending = threading.Event()

    @abstractmethod
    def put(self, topic: bytes, frame: bytes | bytearray) -> None:
        """Give a frame to the library, which copies it.  May raise PeerLost."""

    @abstractmethod
    def get(self, wait: bool = True) -> Any:
        """The next frame, bytes-like; None if none came within a tick, or none is pending and ``wait`` is false."""

    def load(self, octets: int) -> None:
        """Prepare a payload of this size."""
        self._octets = octets
        self._frame = bytearray(HEADER_OCTETS + octets)

    def send(self, scheduled_ns: int = 0) -> None:
        """Send the next message."""
        sequence = self.next
        self.next = sequence + 1
        sent_ns = _time_ns()
        HEADER.pack_into(self._frame, 0, DATA_WORD, self._octets, self._epoch, sequence, sent_ns)
        mono_ns = _monotonic_ns()
        if not is_dropped(sequence, self.drop_every):
            self.put(TRAFFIC, self._frame)
        self.rows.sent(sequence, scheduled_ns, sent_ns, mono_ns)

    def exchange(self, timeout_s: float) -> bool:
        """Send the next message and return when it is answered."""
        sequence = self.next
        self.send()
        deadline = _monotonic_ns() + int(timeout_s * 1e9)
        while self._take_in() != sequence:
            if _monotonic_ns() > deadline:
                return False
        return True

    def _take_in(self) -> int:
        """Record an answer, if one comes; returns the number that it answers, or -1."""
        frame = self.get()
        mono_ns = _monotonic_ns()
        if frame is None:
            return -1
        received_ns = _time_ns()
        if len(frame) == ACK_ONE.size:
            word, _, _, _, t3_ns, epoch, _, sequence, t1_ns, t2_ns = _unpack_ack(frame)
            if word != ACK_WORD or epoch != self._epoch:
                return -1
            self.rows.answered(sequence, mono_ns, t1_ns, t2_ns, t3_ns, received_ns)
            return int(sequence)
        if len(frame) < ACK_ONE.size or _unpack(frame)[0] != ACK_WORD:
            return -1
        t3_ns = _unpack(frame)[4]
        epoch, records = parse_ack(frame)
        for sequence, t1_ns, t2_ns in records if epoch == self._epoch else ():
            self.rows.answered(sequence, mono_ns, t1_ns, t2_ns, t3_ns, received_ns)
        return -1

    def wait_ready(self, timeout_s: float) -> None:
        """Send probes until any is answered: a round trip may be longer than their interval."""
        deadline = time.monotonic() + timeout_s
        first = self.next
        self.load(0)
        while time.monotonic() < deadline:
            self.send()
            until = time.monotonic() + PROBE_S
            while True:
                if self._take_in() >= first:
                    return
                if time.monotonic() > until:
                    break
        raise PeerLost(f"no answer from {self.endpoint} within {timeout_s:g} s")

    def collect(self) -> None:
        """Start to record answers on a thread."""
        self._begin(self._collect)

    def _collect(self) -> None:
        while not self._ending.is_set():
            self._take_in()

    def settle(self, quiet_s: float, cancelled: threading.Event) -> None:
        """Return when every message is answered, or answers have ceased."""
        self.rows.wait(quiet_s, cancelled)
        self.stop()

    def reflect(self, octets: int, bulk: bool) -> None:
        """Start to answer on a thread."""
        self.expected = octets
        self._begin(self._reflect_bulk if bulk else self._reflect)

    def _reflect(self) -> None:
        get, ending = self.get, self._ending
        while not ending.is_set():
            frame = get()
            if frame is not None:
                self.answer(frame)

    def answer(self, frame: Any) -> None:
        """Acknowledge a frame, if it is a message, and record it."""
        received_ns = _time_ns()
        if len(frame) < HEADER_OCTETS:
            return
        word, length, epoch, sequence, sent_ns = _unpack(frame)
        if word != DATA_WORD or length != len(frame) - HEADER_OCTETS:
            return
        number = self._answers
        self._answers = number + 1
        self.put(
            ACK,
            _pack_ack(
                ACK_WORD, ACK_ONE_LENGTH, self._epoch, number, _time_ns(),
                epoch, sequence + 1, sequence, sent_ns, received_ns,
            ),
        )  # fmt: skip
        self.received.arrived(sequence, length, sent_ns, received_ns)

    def _reflect_bulk(self) -> None:
        """Send one answer for all pending messages, as a link does in bulk."""
        received, get, ending = self.received, self.get, self._ending
        number = 0
        while not ending.is_set():
            records: list[tuple[int, int, int]] = []
            frame = get()
            while frame is not None:
                received_ns = _time_ns()
                octets = len(frame) - HEADER_OCTETS
                if octets >= 0 and (head := _unpack(frame))[:2] == (DATA_WORD, octets):
                    _, length, epoch, sequence, sent_ns = head
                    records.append((sequence, sent_ns, received_ns))
                    received.arrived(sequence, length, sent_ns, received_ns)
                frame = get(False) if len(records) < MAX_BATCH else None
            if records:
                self.put(ACK, ack(self._epoch, number, _time_ns(), epoch, sequence + 1, records))
                number += 1

    def _begin(self, body: Any) -> None:
        self._ending.clear()

        def run() -> None:
            with contextlib.suppress(PeerLost):  # the sender notices by itself
                body()

        self._thread = GuardedThread(run, "twinlink-raw")
        self._thread.start()

    def stop(self) -> None:
        """End the thread that reflects or collects."""
        self._ending.set()
        if self._thread is not None:
            self.wake()
            self._thread.join()
            self._thread = None
        self.expected = 0

    def wake(self) -> None:
        """Wake a blocked `get`, if the library can."""
