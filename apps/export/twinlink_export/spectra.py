"""Spectrum in the payload of a message: one OFDM symbol (`twinlink.spectrum`), or whole slots (`twinlink.slots`)."""

from twinlink.errors import MalformedPayload
from twinlink.slots import VERSION, SlotSpectrum
from twinlink.spectrum import Spectrum

_SYMBOL_HEAD = b'{"format":"twinlink-spectrum/'
_SLOTS_HEAD = b"\0\0" + bytes((VERSION,))


def spectrum_of(flow: str, payload: bytes | memoryview) -> Spectrum | SlotSpectrum | None:
    """What a payload holds, recognized by its first octets as `twinlink sub` does; None: something else.

    Raises MalformedPayload where it begins as one and is none; on flow ``spectrum``, whatever it is.
    CompressionMissing.
    """
    is_symbol = bytes(payload[2 : 2 + len(_SYMBOL_HEAD)]) == _SYMBOL_HEAD
    is_slots = bytes(payload[: len(_SLOTS_HEAD)]) == _SLOTS_HEAD
    if not (is_symbol or is_slots):
        return None
    try:
        return Spectrum.decode(payload) if is_symbol else SlotSpectrum.decode(payload)
    except MalformedPayload:
        if flow == "spectrum" or is_symbol:
            raise
        return None  # octets of another format
