"""A payload as one line for a person: what the library knows is decoded, text and JSON stand as they are.

Nothing in a message says what its payload is, so this recognizes formats by their first octets, and may be wrong.  A
payload comes from a peer: what it holds is escaped, and no more of it is looked at than a line can show.
"""

import codecs
import math
import re
from collections.abc import Callable
from typing import NamedTuple

from twinlink import signed_payload
from twinlink.errors import MalformedPayload, TwinlinkError
from twinlink.process.text import on_one_line
from twinlink.text_payload import is_array

from ..appkit import mgen_message as mgen

HEAD_OCTETS = 512  # suffice to recognize a format; with them `payload_format` works
_TEXT_OCTETS = 4096  # more than any terminal is wide
_HEX_OCTETS = 24
_CONTROLS = "\t\r\n\x1b"  # that text may hold: of its lines, and of its colours
_VALUES, _VALUE_OCTETS = 8, 64  # of an array: how many are shown, if they are no longer than that
_JSON = re.compile(r'\s*(\{\s*["}]|\[\s*[\[{"\d\]-])')
_SPECTRUM, _SLOTS_VERSION, _SENSING_OCTETS, _SENSING_RANGE_OCTETS = b'{"format":"twinlink-spectrum/', 2, 36, 6
_STATE = b"tK\x01\x00"
_DB_FLOOR = 1e-3  # LSB^2: what is less has no level


class _Format(NamedTuple):
    """How a payload is recognized by its head and its length, and shown.  ``line`` may raise MalformedPayload."""

    name: str
    matches: Callable[[bytes, int], bool]
    line: Callable[[bytes | memoryview], str]


def payload_format(head: bytes, octets: int) -> str:
    """The name of a payload's format, from its first `HEAD_OCTETS` octets and its length."""
    known = _format(head, octets)
    if known is not None:
        return known.name
    text = _text(head, complete=octets <= len(head))
    if text is None:
        return "octets"
    return "JSON" if _JSON.match(text) else "text" if text else "empty"


def payload_line(payload: bytes | memoryview) -> str:
    """What a payload holds, as one line of printable characters, of any length up to some thousands."""
    head, octets = bytes(payload[:HEAD_OCTETS]), len(payload)
    known = _format(head, octets)
    if known is not None:
        try:
            return on_one_line(f"{known.name} {known.line(payload)}")
        except (MalformedPayload, ValueError):  # it only looked like that
            pass
        except TwinlinkError as error:  # what decodes it is not installed
            return on_one_line(f"{known.name}, {_octets(octets)}: {error}")
    text = _text(bytes(payload[:_TEXT_OCTETS]), complete=octets <= _TEXT_OCTETS)
    if text is not None:
        return on_one_line(text)
    shown = bytes(payload[:_HEX_OCTETS]).hex(" ")
    return f"{_octets(octets)}: {shown}{' ...' if octets > _HEX_OCTETS else ''}"


def _format(head: bytes, octets: int) -> _Format | None:
    return next((each for each in _FORMATS if each.matches(head, octets)), None)


def _text(octets: bytes, complete: bool) -> str | None:
    """The text of octets in UTF-8 that may end within a character; None: they hold other octets."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(octets, final=complete)
    except UnicodeDecodeError:
        return None
    return text if all(one.isprintable() or one in _CONTROLS for one in text) else None


def _octets(count: int) -> str:
    return f"{count:,} octet{'' if count == 1 else 's'}"


def _array(payload: bytes | memoryview) -> str:
    from twinlink.npy import decode

    array = decode(payload)
    if array.dtype.itemsize > _VALUE_OCTETS:
        return f"{array.shape} of {_octets(array.dtype.itemsize)} each"
    values = " ".join(f"{value:.4g}" if array.dtype.kind in "fc" else str(value) for value in array.flat[:_VALUES])
    return f"{array.dtype} {array.shape}: {values}{' ...' if array.size > _VALUES else ''}"


def _spectrum(payload: bytes | memoryview) -> str:
    import numpy as np

    from twinlink.spectrum import Spectrum

    record = Spectrum.decode(payload)
    samples = record.samples.astype(np.float32).reshape(record.n_prbs, -1)
    power = (samples * samples).sum(axis=1) / (samples.shape[1] / 2)
    symbol = "" if record.symbol is None else f", symbol {record.symbol}"
    peak = int(power.argmax())
    levels = f"mean {_db(float(power.mean()))}, peak {_db(float(power[peak]))} in PRB {peak}"
    return f"{record.n_prbs} PRBs, {_carrier(record.scs_hz, record.centre_hz)}{symbol}, {levels}"


def _slots(payload: bytes | memoryview) -> str:
    from twinlink.slots import SlotSpectrum

    message = SlotSpectrum.decode(payload)
    first = message.slots[0]
    count, missing = len(message.slots), sum(slot.missing for slot in message.slots)
    prbs = f"PRBs {message.first_prb} to {message.first_prb + message.n_prbs - 1} of {message.n_prbs_carrier}"
    content = {0: "I/Q", 1: "power", 2: "power in dB"}[message.content]
    parts = (
        f"{count} from {first.sfn}.{first.slot}",
        f"{first.symbols.bit_count()} symbols",
        f"{len(message.antennas)} antennas",
        prbs,
        _carrier(message.scs_hz, message.centre_hz),
        content,
        f"{missing} missing" if missing else "",
    )
    return ", ".join(filter(None, parts))


def _sensing(payload: bytes | memoryview) -> str:
    from twinlink.sensing import SensingRanges

    record = SensingRanges.decode(payload)
    return f"slot {record.sfn}.{record.slot}, {len(record.ranges)} free ranges"


def _digest(payload: bytes | memoryview) -> str:
    from twinlink.digest import Digest

    one = Digest.decode(payload)
    what = "answer, " if one.answer else ""
    return f"{what}{one.records} records, {one.missed} missed, {one.sampled} sampled, {one.settings.n_prbs} PRBs"


def _kpm(payload: bytes | memoryview) -> str:
    from twinlink.kpm import Kpm

    one = Kpm.decode(payload)
    usage = "not known" if one.usage is None else f"{100 * one.usage:.1f} %"
    whose = one.source.name.lower()
    return f"{whose}, UL PRB usage {usage} of {one.slots} slots, {one.missing} missing, {one.n_prbs} PRBs"


def _mgen(payload: bytes | memoryview) -> str:
    packet = mgen.parse(payload[1:])
    numbers = f"{mgen.Protocol(payload[0]).name} flow {packet.flow}, sequence {packet.sequence}"
    return f"{numbers}, {_octets(len(payload) - 1)} to {packet.destination}"


def _is_mgen(head: bytes, octets: int) -> bool:
    """As `twinlink mgen` sends it: an octet for the protocol, then MGEN's message."""
    if octets <= mgen.MIN_OCTETS or head[0] not in (mgen.Protocol.UDP, mgen.Protocol.TCP):
        return False
    try:
        size = mgen.start(head, 1).size
    except MalformedPayload:
        return False
    return size == octets - 1 or (head[0] == mgen.Protocol.TCP and size < octets)


def _is_digest(head: bytes, octets: int) -> bool:
    return head[:1] == b"\x01" and octets >= 72 and octets == 64 + 8 * int.from_bytes(head[8:10], "big")


def _is_kpm(head: bytes, octets: int) -> bool:
    return octets == 56 and head[0] == 1 and head[1] in (1, 2) and head[12:16] == bytes(4)


def _is_sensing(head: bytes, octets: int) -> bool:
    reserved = head[_SENSING_OCTETS - 4 : _SENSING_OCTETS]
    return head[:1] == b"\x01" and reserved == bytes(4) and octets == _SENSING_OCTETS + _SENSING_RANGE_OCTETS * head[1]


def _signed(payload: bytes | memoryview) -> str:
    counter = signed_payload.UNSIGNED_HEAD.unpack_from(payload)[-1]
    body = payload[signed_payload.HEAD_OCTETS :]
    text = _text(bytes(body), complete=True)
    return f"(number {counter}, not verified here) {_octets(len(body)) if text is None else text}"


def _is_signed(head: bytes, octets: int) -> bool:
    possible = signed_payload.HEAD_OCTETS <= octets <= signed_payload.MAX_SIGNED_OCTETS
    return possible and head[:2] == signed_payload.MAGIC and head[2] in (1, 2)


def _state(payload: bytes | memoryview) -> str:
    from twinlink.state.record import decode

    records = decode(payload)
    names = ", ".join(f"{one.slot.key} {one.slot.column}" for one in records[:_VALUES])
    return f"{names}{', ...' if len(records) > _VALUES else ''}"


def _carrier(scs_hz: int, centre_hz: float) -> str:
    return f"{scs_hz / 1e3:g} kHz at {centre_hz / 1e9:.6g} GHz"


def _db(power: float) -> str:
    """In dB relative to 1 LSB^2."""
    return f"{10 * math.log10(power):.1f} dB" if power >= _DB_FLOOR else "-"


_FORMATS = (
    _Format("array", lambda head, _: is_array(head), _array),
    _Format("spectrum", lambda head, _: head[2:].startswith(_SPECTRUM), _spectrum),
    _Format("slots", lambda head, octets: octets >= 88 and head[:3] == bytes((0, 0, _SLOTS_VERSION)), _slots),
    _Format("digest", _is_digest, _digest),
    _Format("kpm", _is_kpm, _kpm),
    _Format("MGEN", _is_mgen, _mgen),
    _Format("sensing", _is_sensing, _sensing),
    _Format("state", lambda head, _: head.startswith(_STATE), _state),
    _Format("signed", _is_signed, _signed),
)
