"""Records of one side during the measurement: rows of integers in memory allocated beforehand.

A row takes a fifth of a microsecond, creates no objects for the garbage collector, and needs no numpy.  Rows are sent
to the sweep as base64 of zlib, and become tables of `twinlink.appkit.records` there.
"""

import base64
import struct
import threading
import time
import zlib

_SENT = struct.Struct("<qqq")  # scheduled (0: when it was sent), T1, monotonic ns when it was sent (0: not known)
_ANSWER = struct.Struct("<qqqqq")  # monotonic ns of the answer (or the RTT, where the first is not known), T1 to T4
_ARRIVAL = struct.Struct("<qqqq")  # sequence, octets of payload, T1, T2
LOOK_S = 0.01
MORE_ROWS = 100_000
PART_OCTETS = 2 * 1024 * 1024  # of rows per line to the sweep, which fits into a message of a link


class SentRows:
    """Rows of ``count`` messages from number ``first`` on, of which ``used`` were sent; others are ignored."""

    def __init__(self, first: int, count: int) -> None:
        self.first, self.count = first, count
        self.used = self.answers = 0
        self._sent = bytearray(_SENT.size * count)
        self._answers = bytearray(_ANSWER.size * count)
        self._pack_sent, self._pack_answer = _SENT.pack_into, _ANSWER.pack_into

    def sent(self, sequence: int, scheduled_ns: int, sent_ns: int, mono_ns: int) -> None:
        """Record that message ``sequence`` was sent."""
        index = sequence - self.first
        if 0 <= index < self.count:
            self._pack_sent(self._sent, index * 24, scheduled_ns, sent_ns, mono_ns)
            self.used = index + 1

    def answered(self, sequence: int, mono_ns: int, t1_ns: int, t2_ns: int, t3_ns: int, t4_ns: int) -> None:
        """Record the answer to message ``sequence``."""
        index = sequence - self.first
        if 0 <= index < self.count:
            self._pack_answer(self._answers, index * 40, mono_ns, t1_ns, t2_ns, t3_ns, t4_ns)
            self.answers += 1

    def wait(self, quiet_s: float, cancelled: threading.Event) -> None:
        """Return when every message is answered, or no answer came for ``quiet_s`` seconds."""
        seen, end = -1, 0.0
        while self.answers < self.used and not cancelled.is_set():
            if self.answers != seen:
                seen, end = self.answers, time.monotonic() + quiet_s
            elif time.monotonic() > end:
                return
            time.sleep(LOOK_S)

    def round_trips(self) -> list[int]:
        """RTTs of the answered messages, in ns."""
        rows = zip(_SENT.iter_unpack(self._sent), _ANSWER.iter_unpack(self._answers), strict=True)
        return [answer[0] - sent[2] for sent, answer in rows if answer[0]]

    def parts(self) -> dict[str, bytes]:
        """The rows used so far, as octets."""
        return {"sent": bytes(self._sent[: self.used * 24]), "answer": bytes(self._answers[: self.used * 40])}


class ReceivedRows:
    """Rows of arrived messages, in order.

    It grows beyond ``count``, for late and repeated messages, to twice that and `MORE_ROWS`.

    Attributes:
        left_out: messages beyond that, which are not recorded.
    """

    def __init__(self, count: int) -> None:
        self.used = self.left_out = 0
        self._most = 2 * count + MORE_ROWS
        self._rows = bytearray(_ARRIVAL.size * count)
        self._room = count
        self._pack = _ARRIVAL.pack_into

    def arrived(self, sequence: int, octets: int, sent_ns: int, received_ns: int) -> None:
        """Record an arrival."""
        used = self.used
        if used == self._room:
            if used >= self._most:
                self.left_out += 1
                return
            self._rows.extend(bytes(_ARRIVAL.size * 1024))
            self._room += 1024
        self._pack(self._rows, used * 32, sequence, octets, sent_ns, received_ns)
        self.used = used + 1

    def since(self, first: int) -> int:
        """Number of arrivals from message ``first`` on; late arrivals of earlier messages are in front of them."""
        late = 0
        while late < self.used and _ARRIVAL.unpack_from(self._rows, late * 32)[0] < first:
            late += 1
        return self.used - late

    def parts(self) -> dict[str, bytes]:
        """The rows used so far, as octets."""
        return {"received": bytes(self._rows[: self.used * 32])}


def encode(octets: bytes) -> str:
    """Octets as text for a line of JSON."""
    return base64.b64encode(zlib.compress(octets, 1)).decode()


def decode(text: str) -> bytes:
    """Reverse `encode`.  Raises ValueError, also for more than `PART_OCTETS`."""
    unpacking = zlib.decompressobj()
    try:
        octets = unpacking.decompress(base64.b64decode(text, validate=True), PART_OCTETS + 1)
    except zlib.error as error:
        raise ValueError(f"rows that cannot be read: {error}") from error
    if not unpacking.eof or len(octets) > PART_OCTETS:
        raise ValueError(f"rows that cannot be read: they are cut off, or more than {PART_OCTETS} octets")
    return octets
