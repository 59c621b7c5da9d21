"""What one side writes down while it measures: fixed rows of integers in memory that was there before.

Writing one takes a fifth of a microsecond, makes nothing for the garbage collector, and needs no numpy.  They travel
home as they are (base64 of zlib) and become tables of `twinlink.measure.records` there.
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


class SentRows:
    """A row for each message from number ``first`` on, ``count`` of them; what is outside is passed over.

    Attributes:
        used: messages sent.
        answers: answers that came.
    """

    def __init__(self, first: int, count: int) -> None:
        self.first, self.count = first, count
        self.used = self.answers = 0
        self._sent = bytearray(_SENT.size * count)
        self._answers = bytearray(_ANSWER.size * count)
        self._pack_sent, self._pack_answer = _SENT.pack_into, _ANSWER.pack_into

    def sent(self, sequence: int, scheduled_ns: int, sent_ns: int, mono_ns: int) -> None:
        """Message ``sequence`` has been sent."""
        index = sequence - self.first
        if 0 <= index < self.count:
            self._pack_sent(self._sent, index * 24, scheduled_ns, sent_ns, mono_ns)
            self.used = index + 1

    def answered(self, sequence: int, mono_ns: int, t1_ns: int, t2_ns: int, t3_ns: int, t4_ns: int) -> None:
        """Its answer came."""
        index = sequence - self.first
        if 0 <= index < self.count:
            self._pack_answer(self._answers, index * 40, mono_ns, t1_ns, t2_ns, t3_ns, t4_ns)
            self.answers += 1

    def wait(self, quiet_s: float, cancelled: threading.Event) -> None:
        """Return when all that was sent has been answered, or no answer came for ``quiet_s`` seconds."""
        seen, end = -1, 0.0
        while self.answers < self.used and not cancelled.is_set():
            if self.answers != seen:
                seen, end = self.answers, time.monotonic() + quiet_s
            elif time.monotonic() > end:
                return
            time.sleep(LOOK_S)

    def round_trips(self) -> list[int]:
        """RTT in ns of what was answered."""
        rows = zip(_SENT.iter_unpack(self._sent), _ANSWER.iter_unpack(self._answers), strict=True)
        return [answer[0] - sent[2] for sent, answer in rows if answer[0]]

    def parts(self) -> dict[str, bytes]:
        """What there is, as octets."""
        return {"sent": bytes(self._sent[: self.used * 24]), "answer": bytes(self._answers[: self.used * 40])}


class ReceivedRows:
    """A row for each message that arrived, in order; grows beyond ``count`` where it must."""

    def __init__(self, count: int) -> None:
        self.used = 0
        self._rows = bytearray(_ARRIVAL.size * count)
        self._room = count
        self._pack = _ARRIVAL.pack_into

    def arrived(self, sequence: int, octets: int, sent_ns: int, received_ns: int) -> None:
        """A message has arrived."""
        used = self.used
        if used == self._room:
            self._rows.extend(bytes(_ARRIVAL.size * 1024))
            self._room += 1024
        self._pack(self._rows, used * 32, sequence, octets, sent_ns, received_ns)
        self.used = used + 1

    def since(self, first: int) -> int:
        """How many there are from number ``first`` on; of what was sent before, what came late stands in front."""
        late = 0
        while late < self.used and _ARRIVAL.unpack_from(self._rows, late * 32)[0] < first:
            late += 1
        return self.used - late

    def parts(self) -> dict[str, bytes]:
        """What there is, as octets."""
        return {"received": bytes(self._rows[: self.used * 32])}


def encode(octets: bytes) -> str:
    """Octets as text for a line of JSON."""
    return base64.b64encode(zlib.compress(octets, 1)).decode()


def decode(text: str) -> bytes:
    """What `encode` made.  Raises ValueError."""
    try:
        return zlib.decompress(base64.b64decode(text, validate=True))
    except zlib.error as error:
        raise ValueError(f"rows that cannot be read: {error}") from error
