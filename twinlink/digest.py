"""Payload of flow ``digest``: what an exporter heard in each second, before anything of it was reduced, held or lost.

The twin makes the same from what arrived, and compares the two (`twinlink.fidelity`).  A window is a second of Unix
time by ``observed_ns``; a record is a symbol of the first antenna, or with slot mean a slot.  In network byte order, a
head of 64 octets follows, then the power of each PRB, then the occupancy of each, 4 octets each:

    offset  octets
         0       1   version: 1
         1       1   flags: 1 answers a `DigestRequest`: the window has not ended; 2 the power of a slot is one record
         2       1   content of flow ``spectrum``: as in `twinlink.slots`
         3       1   0
         4       2   PRBs of the carrier
         6       2   first PRB
         8       2   PRBs
        10       2   every: of so many slots one is to be sent
        12       4   subcarrier spacing, Hz
        16       8   carrier centre, Hz, float64
        24       8   window: its begin, Unix time in ns, a multiple of 10^9
        32       8   observed_ns of its first record; 0 without one
        40       8   observed_ns of its last record; 0 without one
        48       4   records
        52       4   missed: records that the exporter knows of and could not read
        56       4   sampled: records of which power and occupancy are
        60       4   threshold, float32, LSB^2

Power is the mean over the sampled records, float32, in LSB^2 per subcarrier; occupancy is the number of sampled records
whose power in this PRB exceeds the threshold.  Symbols are all sampled; of whole slots those whose observed_ns is a
multiple of `SLOT_SAMPLING`, as ns have no relation to slots; `MAX_ROWS` of a window at most.  The threshold is that of
an interferer of 5 dB: `MIN_POWER` times the noise floor, the mean of the lowest cluster of powers in `FLOOR_ROWS` of
these records.  It is stated because the twin counts by it, too.
"""

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import MalformedPayload
from .slots import MAX_PRBS, SlotSpectrum, is_slots, power_per_prb
from .spectrum import Spectrum
from .text_payload import short_json

FLOW, REQUEST_FLOW = "digest", "digest-request"
VERSION = 1
WINDOW_NS = 1_000_000_000
SLOT_SAMPLING = 16
MAX_ROWS = 8192  # of a window: 9 MB of 273 PRBs
FLOOR_ROWS = 64
MIN_POWER = 1 + 10**0.5  # of noise and an interferer of 5 dB, relative to the noise floor
QUANTISATION = 1 / 6  # LSB^2: noise of rounding I and Q to integers; nothing is measured below it
MAX_TIME_NS = 2**63 - 1
MAX_REASON_LENGTH = 256
MAX_REQUEST_OCTETS = 4096
_CLUSTER = 1.8  # cells up to this multiple of the floor belong to it
_HEAD = struct.Struct(">BBBxHHHHIdQQQIIIf")
_ANSWER, _SLOT_MEAN = 1, 2
_CONTENTS = 3
Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Settings:
    """What an exporter sends on flow ``spectrum``; a digest states it each time.

    Attributes:
        n_prbs_carrier, first_prb, n_prbs: PRBs of the carrier, and the range that is sent.
        scs_hz: subcarrier spacing in Hz.
        centre_hz: carrier centre in Hz.
        content: I/Q, power, or power in dB, as `twinlink.slots.Content`.
        slot_mean: whether a slot is one record, the mean over its symbols.
        every: of so many slots one is to be sent.
    """

    n_prbs_carrier: int
    first_prb: int
    n_prbs: int
    scs_hz: int
    centre_hz: float
    content: int = 0
    slot_mean: bool = False
    every: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Digest:
    """A window; the module says what the fields mean.

    Attributes:
        power: float32, shape ``(n_prbs,)``, in LSB^2; zeros if nothing was sampled.
        occupied: uint32, same shape.
        answer: whether it answers a request: the window has not ended, and is not to be compared.
    """

    settings: Settings
    window_ns: int
    first_ns: int
    last_ns: int
    records: int
    missed: int
    sampled: int
    threshold: float
    power: Rows
    occupied: NDArray[np.uint32]
    answer: bool = False

    def encode(self) -> bytes:
        """The payload.  Raises ValueError for a value that does not fit."""
        given = self.settings
        flags = (_ANSWER if self.answer else 0) | (_SLOT_MEAN if given.slot_mean else 0)
        if self.power.shape != (given.n_prbs,) or self.occupied.shape != (given.n_prbs,):
            raise ValueError(f"a digest of {given.n_prbs} PRBs has as many powers and occupancies")
        try:
            head = _HEAD.pack(
                VERSION, flags, given.content, given.n_prbs_carrier, given.first_prb, given.n_prbs, given.every,
                given.scs_hz, given.centre_hz, self.window_ns, self.first_ns, self.last_ns, self.records, self.missed,
                self.sampled, self.threshold,
            )  # fmt: skip
        except struct.error as error:
            raise ValueError(f"a digest cannot be encoded: {error}") from error
        return head + self.power.astype(">f4").tobytes() + self.occupied.astype(">u4").tobytes()

    @classmethod
    def decode(cls, payload: bytes | memoryview) -> "Digest":
        """Read a payload.  Raises MalformedPayload saying what is wrong."""
        if len(payload) < _HEAD.size:
            raise MalformedPayload(f"a digest has at least {_HEAD.size} octets, not {len(payload)}")
        (
            version, flags, content, carrier, first_prb, n_prbs, every, scs_hz, centre_hz, window_ns, first_ns, last_ns,
            records, missed, sampled, threshold,
        ) = _HEAD.unpack_from(payload)  # fmt: skip
        if version != VERSION or flags & ~(_ANSWER | _SLOT_MEAN) or content >= _CONTENTS or payload[3]:
            raise MalformedPayload(f"a digest of version {version}, flags {flags}, content {content} is not known here")
        if not (n_prbs > 0 and first_prb + n_prbs <= carrier <= MAX_PRBS and scs_hz and every):
            raise MalformedPayload(f"PRBs {first_prb} to {first_prb + n_prbs - 1} of {carrier}, one slot of {every}")
        if len(payload) != _HEAD.size + 8 * n_prbs:
            raise MalformedPayload(f"{len(payload)} octets are no digest of {n_prbs} PRBs")
        if not (math.isfinite(centre_hz) and math.isfinite(threshold) and threshold >= 0):
            raise MalformedPayload(f"the carrier centre is {centre_hz} Hz, the threshold {threshold}")
        power = np.frombuffer(payload, ">f4", n_prbs, _HEAD.size).astype(np.float32)
        occupied = np.frombuffer(payload, ">u4", n_prbs, _HEAD.size + 4 * n_prbs).astype(np.uint32)
        _check_window(window_ns, first_ns, last_ns, records)
        if sampled > records or occupied.max() > sampled or not (np.isfinite(power).all() and (power >= 0).all()):
            raise MalformedPayload(f"{sampled} of {records} records sampled: power or occupancy is out of range")
        return cls(
            Settings(carrier, first_prb, n_prbs, scs_hz, centre_hz, content, bool(flags & _SLOT_MEAN), every),
            window_ns, first_ns, last_ns, records, missed, sampled, threshold, power, occupied, bool(flags & _ANSWER),
        )  # fmt: skip


def _check_window(window_ns: int, first_ns: int, last_ns: int, records: int) -> None:
    """Raises MalformedPayload."""
    within = window_ns <= first_ns <= last_ns < window_ns + WINDOW_NS if records else first_ns == last_ns == 0
    if window_ns % WINDOW_NS or window_ns > MAX_TIME_NS or not within:
        raise MalformedPayload(f"a window from {window_ns} ns, with {records} records from {first_ns} to {last_ns} ns")


@dataclass(frozen=True, slots=True)
class DigestRequest:
    """On flow ``digest-request``: a twin asks for an answer at once.  UTF-8 JSON of exactly these fields.

    Attributes:
        node: name of the exporter that is to answer; empty: each.
        reason: for the exporter's log.
    """

    node: str
    reason: str

    def encode(self) -> bytes:
        """The payload."""
        return json.dumps({"node": self.node, "reason": self.reason}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, payload: bytes | memoryview) -> "DigestRequest":
        """Read a payload.  Raises MalformedPayload saying what is wrong."""
        fields = short_json(payload, MAX_REQUEST_OCTETS)
        if not isinstance(fields, dict) or set(fields) != {"node", "reason"}:
            raise MalformedPayload("a JSON object with exactly the fields node, reason is expected")
        if not all(isinstance(value, str) and len(value) <= MAX_REASON_LENGTH for value in fields.values()):
            raise MalformedPayload(f"node and reason must be strings of at most {MAX_REASON_LENGTH} characters")
        return cls(**fields)


class Window:
    """The records of a window, as they come.

    Attributes:
        begin_ns: Unix time in ns.
        records: how many.
        first_ns, last_ns: ``observed_ns`` of the first and the last; 0 without one.
    """

    def __init__(self, begin_ns: int) -> None:
        self.begin_ns = begin_ns
        self.records = self.first_ns = self.last_ns = 0
        self._rows: list[Rows] = []
        self._kept = 0

    @property
    def sampled(self) -> int:
        """Records that were sampled."""
        return self._kept

    def count(self, observed_ns: int, records: int = 1) -> None:
        """Count records that were observed at a time."""
        self.records += records
        self.first_ns = min(self.first_ns or observed_ns, observed_ns)
        self.last_ns = max(self.last_ns, observed_ns)

    def sample(self, power: Rows) -> None:
        """Take in the power of records that are sampled, LSB^2 per subcarrier, shape ``(records, n_prbs)``.

        What is no number in the gNB's memory counts as 0.
        """
        power = power[: MAX_ROWS - self._kept]
        self._kept += len(power)
        if len(power):
            self._rows.append(np.where(np.isfinite(power), power, np.float32(0)))

    def threshold(self) -> float:
        """The power above which a PRB counts as occupied, LSB^2; 0 if nothing was sampled."""
        if not self._kept:
            return 0.0
        rows = self._all_rows()
        return MIN_POWER * noise_floor(rows[:: -(-len(rows) // FLOOR_ROWS)])

    def spectrum(self, n_prbs: int, threshold: float) -> tuple[Rows, NDArray[np.uint32]]:
        """Mean power, and number of records above the threshold, both of shape ``(n_prbs,)``."""
        if not self._kept:
            return np.zeros(n_prbs, np.float32), np.zeros(n_prbs, np.uint32)
        rows = self._all_rows()
        return rows.mean(axis=0), (rows > np.float32(threshold)).sum(axis=0, dtype=np.uint32)

    def digest(self, settings: Settings, missed: int = 0, answer: bool = False) -> Digest:
        """Its digest, by its own threshold."""
        threshold = float(np.float32(self.threshold()))
        power, occupied = self.spectrum(settings.n_prbs, threshold)
        return Digest(
            settings, self.begin_ns, self.first_ns, self.last_ns, self.records, missed, self._kept, threshold, power,
            occupied, answer,
        )  # fmt: skip

    def _all_rows(self) -> Rows:
        if len(self._rows) > 1:
            self._rows = [np.concatenate(self._rows)]
        return self._rows[0]


def begin_of(observed_ns: int) -> int:
    """The begin of the window of a record."""
    return observed_ns - observed_ns % WINDOW_NS


def is_sampled(observed_ns: int, whole_slot: bool) -> bool:
    """Whether a record, or the records of a whole slot, are sampled."""
    return not (whole_slot and observed_ns % SLOT_SAMPLING)


def symbol_power(samples: NDArray[np.int16]) -> Rows:
    """Power per PRB of symbols, ``(symbols, n_prbs)``, from I and Q of subcarriers, ``(symbols, n_prbs * 12, 2)``."""
    power: Rows = power_per_prb(samples.astype(np.float32)[None])[0]
    return power


def slot_power(message: SlotSpectrum, samples: NDArray[np.float16], slot_mean: bool) -> Rows:
    """Power per PRB of each record of a slot, shape ``(records, n_prbs)``, from its I/Q in the gNB's memory.

    Args:
        message: of the same settings.
        samples: shape ``(antennas, symbols, PRBs * 12, 2)``; of the first antenna.
        slot_mean: whether the slot is one record.
    """
    power: Rows = power_per_prb(message.float16_in_lsb(samples[:1]))[0]
    return np.asarray(power.mean(axis=0, keepdims=True)) if slot_mean else power


class Observed(NamedTuple):
    """A symbol or slot of a message of flow ``spectrum``.

    Attributes:
        observed_ns: Unix time in ns.
        records: how many records it is.
        power: their power per PRB, LSB^2, shape ``(records, n_prbs)``; None if they are not sampled.
        first_prb: number of the first PRB in the carrier.
    """

    observed_ns: int
    records: int
    power: Rows | None
    first_prb: int


def observed(payload: bytes | memoryview) -> Iterator[Observed]:
    """What a message of flow ``spectrum`` holds.  Raises MalformedPayload, and CompressionMissing of slots."""
    if not is_slots(payload):
        symbol = Spectrum.decode(payload)
        yield Observed(symbol.observed_ns, 1, symbol_power(symbol.samples[None]), 0)
        return
    message = SlotSpectrum.decode(payload)
    for slot in message.slots:
        power = message.power(slot)[0] if is_sampled(slot.observed_ns, whole_slot=True) else None
        yield Observed(slot.observed_ns, slot.data.shape[1], power, message.first_prb)


def noise_floor(power: Rows) -> float:
    """The mean of the lowest cluster of powers, LSB^2; zeros, as of blanked PRBs, do not count."""
    cells = power[power > 0]
    if not len(cells):
        return QUANTISATION
    rank = max(2, len(cells) // 200) if len(cells) > 2 else 0
    level = float(np.partition(cells, rank)[rank])
    for _ in range(12):
        mean = float(cells[cells <= _CLUSTER * level].mean())
        if abs(mean - level) < 0.005 * level:
            break
        level = mean
    return max(level, QUANTISATION)
