"""Payload of flow ``spectrum`` from a gNB that hands over whole slots: I/Q or power, of one slot or several.

A message begins with a head of 48 octets, in network byte order.  Its first 16 bits are zero, where a message of
`twinlink.spectrum` has the length of its JSON head.

    offset  octets
         0       2   0
         2       1   version: 2
         3       1   content: 0 I/Q, 1 power as float32, 2 power in dB as one octet
         4       1   flags: 1 the power is the mean over the symbols of the slot
         5       1   number of slots
         6       2   every: the sender takes every so many slots
         8       2   PRBs of the carrier
        10       2   first PRB
        12       2   PRBs
        14       2   antennas: bit a stands for antenna a
        16       4   subcarrier spacing, Hz
        20       4   beta, float32: a value of I/Q is the gNB's int16 times beta
        24       8   carrier centre, Hz, float64
        32      16   reserved

For each slot, a head of 40 octets and the data follow:

         0       8   observed: when the sender read it, Unix time in ns
         8       8   the gNB's time, in ns of its clock
        16       2   system frame number
        18       2   slot in the frame
        20       2   symbols: bit s stands for symbol s
        22       1   the gNB's clock: 0 unknown, 1 monotonic, 2 Unix time, 3 TAI
        23       1   format: 0 float16, 1 int16, 2 float32, 3 one octet; 128 more: compressed by blosc2
        24       4   missing: slots before this one that the sender should have sent and could not
        28       4   octets of data
        32       8   reserved

Data is little-endian, in C order: antenna, symbol, subcarrier, I and Q; of power: antenna, symbol, PRB, or with the
flag antenna, PRB.  int16 stands for the float16 that is the number times beta.  Power is the mean of |I + jQ|^2 over
the subcarriers of the PRB, in LSB^2 of the gNB's int16.  One octet v stands for v / 2 - 30.5 dB: 1 to 255 are -30 to
97 dB in steps of half a dB; 0 is less than that.

The data of a message has at most `MAX_DATA_OCTETS`, decompressed: that follows from the heads, and is checked before
anything is decompressed.  32 slots with all antennas, symbols and subcarriers have less.
"""

import math
import struct
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from .errors import MalformedPayload, TwinlinkError
from .spectrum import SUBCARRIERS_PER_PRB

VERSION = 2
MAX_SLOTS = 32  # of a message that is encoded
MAX_SLOTS_READ = 64  # former versions sent so many
MAX_DATA_OCTETS = 96 * 1024 * 1024  # of a message
MAX_ANTENNAS = 16
MAX_TIME_NS = 2**63 - 1
SYMBOLS = 14
ALL_SYMBOLS = (1 << SYMBOLS) - 1
MAX_PRBS = 275  # 3GPP TS 38.331 maxNrofPhysicalResourceBlocks
LOWEST_DB = -30.5  # of the octet 0
STEPS_PER_DB = 2
_HEAD = struct.Struct(">HBBBBHHHHHIfd16x")
_SLOT = struct.Struct(">QQHHHBBII8x")
_SLOT_MEAN = 1
_COMPRESSED = 128
_FORMATS = tuple(np.dtype(name) for name in ("<f2", "<i2", "<f4", "u1"))
_FORMAT_OF = {dtype: number for number, dtype in enumerate(_FORMATS)}
_FORMATS_OF = {0: (0, 1), 1: (2,), 2: (3,)}  # by `Content`


class Content(IntEnum):
    """What the data of a slot is."""

    IQ = 0
    POWER = 1
    POWER_DB = 2


class Clock(IntEnum):
    """The clock of the gNB's times."""

    UNKNOWN = 0
    MONOTONIC = 1
    UNIX = 2
    TAI = 3


_CLOCKS = {int(clock): clock for clock in Clock}


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot; the module says what the fields mean.

    Attributes:
        data: float16 or int16, shape ``(antennas, symbols, PRBs * 12, 2)``; of power float32 or uint8,
            ``(antennas, symbols, PRBs)``, with one symbol where the mean is taken.
        symbols: mask of the symbols, also of those of which the mean is taken.
    """

    data: NDArray[np.generic]
    sfn: int
    slot: int
    symbols: int
    observed_ns: int
    gnb_ns: int = 0
    clock: Clock = Clock.UNKNOWN
    missing: int = 0


@dataclass(frozen=True, slots=True)
class SlotSpectrum:
    """A message: what its slots have in common, and the slots.

    Attributes:
        n_prbs_carrier: PRBs of the carrier; the message has PRBs ``first_prb`` to ``first_prb + n_prbs - 1``.
        antennas: their numbers, ascending.
        scs_hz: subcarrier spacing in Hz.
        centre_hz: carrier centre in Hz.
        beta: as configured at the sender.
        content: what the data is.
        slot_mean: whether power is the mean over the slot's symbols.
        every: the sender takes every so many slots.
        slots: 1 to `MAX_SLOTS`.
    """

    n_prbs_carrier: int
    first_prb: int
    n_prbs: int
    antennas: tuple[int, ...]
    scs_hz: int
    centre_hz: float
    beta: float
    content: Content = Content.IQ
    slot_mean: bool = False
    every: int = 1
    slots: tuple[Slot, ...] = field(default=())

    def encode(self, *, compress: bool = False) -> bytes:
        """The payload.

        Args:
            compress: by blosc2, without loss; I/Q as int16 where that is exact.

        Raises:
            ValueError: a value that the format cannot express, too many slots, or data of another shape.
            CompressionMissing: blosc2 is not installed.
        """
        if not 0 < len(self.slots) <= MAX_SLOTS:
            raise ValueError(f"a message has 1 to {MAX_SLOTS} slots, not {len(self.slots)}")
        mask = sum(1 << antenna for antenna in self.antennas)
        parts: list[bytes | memoryview] = [
            _HEAD.pack(
                0, VERSION, self.content, _SLOT_MEAN if self.slot_mean else 0, len(self.slots), self.every,
                self.n_prbs_carrier, self.first_prb, self.n_prbs, mask, self.scs_hz, self.beta, self.centre_hz,
            )
        ]  # fmt: skip
        for slot in self.slots:
            data = slot.data
            if data.shape != self._shape(slot.symbols):
                raise ValueError(f"slot {slot.sfn}.{slot.slot} has shape {data.shape}, not {self._shape(slot.symbols)}")
            if compress and data.dtype == np.float16:
                data = _exact_int16(data, self.beta)
            octets = _compress(data) if compress else np.ascontiguousarray(data).data.cast("B")
            code = _FORMAT_OF[data.dtype] + (_COMPRESSED if compress else 0)
            parts += (
                _SLOT.pack(
                    slot.observed_ns, slot.gnb_ns, slot.sfn, slot.slot, slot.symbols, slot.clock, code, slot.missing,
                    len(octets),
                ),
                octets,
            )  # fmt: skip
        return b"".join(parts)

    @classmethod
    def decode(cls, payload: bytes | memoryview) -> "SlotSpectrum":
        """Read a payload; data that is not compressed is a view into it.

        Raises:
            MalformedPayload: saying what is wrong.
            CompressionMissing: it is compressed, and blosc2 is not installed.
        """
        view = memoryview(payload)
        if not is_slots(view):
            raise MalformedPayload(f"{len(view)} octets that do not begin as a message of whole slots does")
        message, n_slots = _read_head(bytes(view[: _HEAD.size]))
        at, slots, room = _HEAD.size, [], MAX_DATA_OCTETS
        for _ in range(n_slots):
            slot, at = message._read_slot(view, at, room)
            room -= slot.data.nbytes
            slots.append(slot)
        if at != len(view):
            raise MalformedPayload(f"{len(view) - at} octets follow the last slot")
        return replace(message, slots=tuple(slots))

    def in_lsb(self, slot: Slot, out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """I/Q of a slot in LSB of the gNB's int16, float32; exact where beta is a power of two.

        Args:
            slot: of this message.
            out: where to put it, of the same shape as the slot's data, C-contiguous.
        """
        values = np.empty(slot.data.shape, np.float32) if out is None else out
        if slot.data.dtype == np.float16:
            return _divided(slot.data, self.beta, values)
        values[...] = slot.data
        return values

    def float16_in_lsb(self, samples: NDArray[np.generic]) -> NDArray[np.float32]:
        """float16 as in the gNB's memory, in LSB."""
        return _divided(samples, self.beta, np.empty(samples.shape, np.float32))

    def power(self, slot: Slot) -> NDArray[np.float32]:
        """Power in LSB^2 per PRB, float32, shape ``(antennas, symbols, PRBs)``; of I/Q it is computed."""
        if self.content is Content.POWER_DB:
            return _POWER_OF_OCTET[slot.data.astype(np.uint8, copy=False)]
        if self.content is Content.POWER:
            return slot.data.astype(np.float32, copy=False)
        return power_per_prb(self.in_lsb(slot))

    def _read_slot(self, view: memoryview, at: int, room: int) -> tuple[Slot, int]:
        """The slot at this offset, whose data may have ``room`` octets, and the offset behind it."""
        if len(view) - at < _SLOT.size:
            raise MalformedPayload("the payload ends within the head of a slot")
        observed_ns, gnb_ns, sfn, slot, symbols, clock, code, missing, size = _SLOT.unpack_from(view, at)
        at += _SLOT.size
        number = code & ~_COMPRESSED
        if observed_ns > MAX_TIME_NS or gnb_ns > MAX_TIME_NS:
            raise MalformedPayload(f"slot {sfn}.{slot}: times of {observed_ns} and {gnb_ns} ns")
        known = number in _FORMATS_OF[self.content] and clock in _CLOCKS
        if not known or not 0 < symbols <= ALL_SYMBOLS or size > len(view) - at:
            text = f"format {code}, clock {clock}, symbols {symbols:#x}, {size} octets"
            raise MalformedPayload(f"slot {sfn}.{slot}: {text}")
        dtype, shape = _FORMATS[number], self._shape(symbols)
        expected = math.prod(shape) * dtype.itemsize
        if expected > room:
            raise MalformedPayload(f"slot {sfn}.{slot}: the data of the message exceeds {MAX_DATA_OCTETS} octets")
        octets: bytes | memoryview = view[at : at + size]
        if code & _COMPRESSED:
            octets = _decompress(bytes(octets), expected)
        if len(octets) != expected:
            raise MalformedPayload(f"slot {sfn}.{slot} has {len(octets)} octets of data, not {expected}")
        data = np.frombuffer(octets, dtype).reshape(shape)
        return Slot(data, sfn, slot, symbols, observed_ns, gnb_ns, _CLOCKS[clock], missing), at + size

    def _shape(self, symbols: int) -> tuple[int, ...]:
        count = 1 if self.slot_mean else symbols.bit_count()
        if self.content is Content.IQ:
            return len(self.antennas), count, self.n_prbs * SUBCARRIERS_PER_PRB, 2
        return len(self.antennas), count, self.n_prbs


@lru_cache(maxsize=16)
def _read_head(octets: bytes) -> tuple[SlotSpectrum, int]:
    """A message without its slots, and their number; the head seldom changes.  Raises MalformedPayload."""
    (
        _, version, content, flags, n_slots, every, carrier, first, n_prbs, mask, scs_hz, beta, centre_hz,
    ) = _HEAD.unpack(octets)  # fmt: skip
    known = version == VERSION and content in _FORMATS_OF and flags & ~_SLOT_MEAN == 0
    if not known or not 0 < n_slots <= MAX_SLOTS_READ or not every:
        raise MalformedPayload(f"slots of version {version}, content {content}, flags {flags} are not known here")
    if not (n_prbs > 0 and first + n_prbs <= carrier <= MAX_PRBS and mask and scs_hz):
        raise MalformedPayload(f"PRBs {first} to {first + n_prbs - 1} of {carrier}, antennas {mask:#x}")
    if not (math.isfinite(beta) and beta > 0 and math.isfinite(centre_hz)):
        raise MalformedPayload(f"beta is {beta}, the carrier centre is {centre_hz} Hz")
    antennas = tuple(antenna for antenna in range(MAX_ANTENNAS) if mask >> antenna & 1)
    message = SlotSpectrum(
        carrier, first, n_prbs, antennas, scs_hz, centre_hz, beta, Content(content), bool(flags & _SLOT_MEAN), every
    )
    return message, n_slots


class CompressionMissing(TwinlinkError, ImportError):
    """blosc2, which compresses the data of slots, is not installed."""


def require_compression() -> None:
    """Raises CompressionMissing without blosc2."""
    _blosc2()


def is_slots(payload: bytes | memoryview) -> bool:
    """Whether a payload of flow ``spectrum`` is of this format."""
    return len(payload) >= _HEAD.size and bytes(payload[:2]) == b"\0\0"


def db_octets(power: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Power in LSB^2 as octets, see the module."""
    with np.errstate(divide="ignore"):
        steps = (10 * np.log10(power) - LOWEST_DB) * STEPS_PER_DB
    octets: NDArray[np.uint8] = np.clip(np.rint(steps), 0, 255).astype(np.uint8)
    return octets


def power_per_prb(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean of |I + jQ|^2 over the subcarriers of each PRB.

    Args:
        samples: shape ``(antennas, symbols, PRBs * 12, 2)``.

    Returns:
        Shape ``(antennas, symbols, PRBs)``.
    """
    antennas, symbols, subcarriers, _ = samples.shape
    values = samples.reshape(antennas, symbols, subcarriers // SUBCARRIERS_PER_PRB, 2 * SUBCARRIERS_PER_PRB)
    power: NDArray[np.float32] = np.einsum("aspk,aspk->asp", values, values) / np.float32(SUBCARRIERS_PER_PRB)
    return power


_POWER_OF_OCTET = (10 ** ((np.arange(256) / STEPS_PER_DB + LOWEST_DB) / 10)).astype(np.float32)
_POWER_OF_OCTET[0] = 0.0


def _exact_int16(data: NDArray[np.generic], beta: float) -> NDArray[np.generic]:
    """float16 as int16 multiples of beta, which compress better; unchanged where that would not give the same bits."""
    numbers = np.take(_int16_table(beta), data.view(np.uint16), mode="clip")
    return data if (numbers == _INEXACT).any() else numbers


_INEXACT = -32768


@lru_cache(maxsize=4)
def _int16_table(beta: float) -> NDArray[np.int16]:
    """By the bits of a float16: the number that times beta is that float16, or `_INEXACT`."""
    halves = np.arange(65536).astype(np.uint16).view(np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = np.rint(halves.astype(np.float64) / beta)
        again = (numbers.astype(np.float32) * np.float32(beta)).astype(np.float16)
    exact = (again.view(np.uint16) == halves.view(np.uint16)) & (np.abs(numbers) <= 32767)
    return np.where(exact, numbers, _INEXACT).astype(np.int16)


_INFINITY, _MINUS_INFINITY = 0x7C00, 0xFC00  # bits as float16; greater ones are not a number
_MIN_BETA = 2.0**-14  # with less, the divisor would be too small for a float32 of full precision
_SIGN_EXPONENT_FRACTION = np.int32(~0x70001FFF)  # bits of a float32 that a float16 fills


def _divided(halves: NDArray[np.generic], beta: float, out: NDArray[np.float32]) -> NDArray[np.float32]:
    """float16 divided by beta, in a seventh of the time that numpy takes to convert them one by one.

    Exponent and fraction move to where float32 has them, where the bias of the exponent is greater by 112.
    """
    signed: NDArray[np.int16] = halves.view(np.int16)
    if beta < _MIN_BETA or signed.max() >= _INFINITY or signed.view(np.uint16).max() >= _MINUS_INFINITY:
        with np.errstate(invalid="ignore"):
            return np.divide(halves.astype(np.float32), np.float32(beta), out=out)
    bits: NDArray[np.int32] = out.view(np.int32)
    bits[...] = signed
    np.left_shift(bits, 13, out=bits)
    np.bitwise_and(bits, _SIGN_EXPONENT_FRACTION, out=bits)
    return np.divide(out, np.float32(math.ldexp(beta, -112)), out=out)


def _blosc2() -> ModuleType:
    try:
        import blosc2
    except ImportError:
        raise CompressionMissing(
            "blosc2, which compresses slots, is not installed: pip install 'twinlink[compression]'"
        ) from None
    module: ModuleType = blosc2
    return module


def _compress(data: NDArray[np.generic]) -> bytes:
    blosc2 = _blosc2()
    octets: bytes = blosc2.compress2(
        np.ascontiguousarray(data), codec=blosc2.Codec.LZ4, clevel=5, nthreads=1,
        filters=[blosc2.Filter.BITSHUFFLE], typesize=data.dtype.itemsize,
    )  # fmt: skip
    return octets


def _decompress(octets: bytes, expected: int) -> bytes:
    blosc2 = _blosc2()
    try:
        size = blosc2.get_cbuffer_sizes(octets)[0]
        if size != expected:
            raise MalformedPayload(f"compressed data claims {size} octets, not {expected}")
        whole: bytes = blosc2.decompress2(octets, nthreads=1)
    except MalformedPayload:
        raise
    except (RuntimeError, ValueError, TypeError) as error:
        raise MalformedPayload(f"compressed data cannot be read: {error}") from error
    return whole
