"""Payload of flow ``spectrum``: the frequency-domain samples of one OFDM symbol, with what is needed to read them.

Layout: a 16-bit big-endian length L, L octets of UTF-8 JSON padded with spaces so that the samples start on a multiple
of 8 octets, then the samples to the end of the payload.  A reader in any language needs a JSON parser and nothing else.
`Spectrum.encode` shows the members of the JSON object; what they mean stands at `Spectrum`.
"""

import json
import math
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import MalformedPayload

SUBCARRIERS_PER_PRB = 12  # 3GPP TS 38.211 clause 4.4.4.1
FORMAT = "twinlink-spectrum/1"
_LENGTH = struct.Struct(">H")
_MAX_SCS_HZ = 2**32 - 1
_MAX_INTEGER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Spectrum:
    """One OFDM symbol of one antenna, after the gNB's FFT, in natural PRB order (lowest frequency first).

    Attributes:
        samples: int16 array of shape ``(n_prbs * 12, 2)``, columns I and Q; on the wire ``ci16_le``.
        n_prbs: PRBs in the symbol.
        scs_hz: subcarrier spacing in Hz.
        centre_hz: carrier centre frequency in Hz; subcarrier ``n_prbs * 6`` sits on it.
        observed_ns: when the exporter took the indication from E3, Unix time in ns on the exporter's clock.
            (G0 E3 carries no trustworthy time of its own; the RAN's field, where present, is in ``e3``.)
        symbol: OFDM symbol index within the slot, or None where E3 does not say.
        fft_size: size of the FFT the samples were cropped from, or None when they were not.
        e3: the E3 identifiers of the indication, as the RAN gave them.
    """

    samples: NDArray[np.int16]
    n_prbs: int
    scs_hz: int
    centre_hz: float
    observed_ns: int
    symbol: int | None = None
    fft_size: int | None = None
    e3: dict[str, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The payload.  Raises ValueError when the samples do not have the shape that ``n_prbs`` states."""
        if self.samples.shape != (self.n_prbs * SUBCARRIERS_PER_PRB, 2) or self.samples.dtype != np.int16:
            raise ValueError(
                f"spectrum samples must be int16 of shape ({self.n_prbs * SUBCARRIERS_PER_PRB}, 2) for "
                f"{self.n_prbs} PRBs, not {self.samples.dtype} {self.samples.shape}"
            )
        text = json.dumps(
            {
                "format": FORMAT,
                "sample_format": "ci16_le",
                "order": "natural",
                "n_prbs": self.n_prbs,
                "scs_hz": self.scs_hz,
                "centre_hz": self.centre_hz,
                "observed_ns": self.observed_ns,
                "symbol": self.symbol,
                "fft_size": self.fft_size,
                "e3": self.e3,
            },
            separators=(",", ":"),
        ).encode()
        text += b" " * (-(_LENGTH.size + len(text)) % 8)
        return _LENGTH.pack(len(text)) + text + self.samples.astype("<i2", copy=False).tobytes()

    @classmethod
    def decode(cls, payload: bytes | memoryview) -> "Spectrum":
        """Read a payload; ``samples`` is a view into it.  Raises MalformedPayload saying what is wrong."""
        view = memoryview(payload)
        if len(view) < _LENGTH.size:
            raise MalformedPayload(f"a spectrum payload has at least {_LENGTH.size} octets, this one has {len(view)}")
        start = _LENGTH.size + _LENGTH.unpack_from(view)[0]
        try:
            head: dict[str, Any] = json.loads(bytes(view[_LENGTH.size : start]))
            if (head["format"], head["sample_format"], head["order"]) != (FORMAT, "ci16_le", "natural"):
                raise MalformedPayload(
                    f"this reader knows {FORMAT}, ci16_le, natural order; the payload says "
                    f"{head['format']}, {head['sample_format']}, {head['order']}"
                )
            n_prbs = int(head["n_prbs"])
            expected = n_prbs * SUBCARRIERS_PER_PRB * 4
            if n_prbs < 1 or len(view) - start != expected:
                raise MalformedPayload(
                    f"{n_prbs} PRBs of ci16_le take {expected} octets, the payload holds {len(view) - start}"
                )
            return cls(
                samples=np.frombuffer(view[start:], "<i2").reshape(-1, 2),
                n_prbs=n_prbs,
                scs_hz=_within(head["scs_hz"], 1, _MAX_SCS_HZ),
                centre_hz=_finite(head["centre_hz"]),
                observed_ns=_within(head["observed_ns"], 0, _MAX_INTEGER),
                symbol=None if head["symbol"] is None else _within(head["symbol"], 0, _MAX_INTEGER),
                fft_size=None if head["fft_size"] is None else _within(head["fft_size"], 0, _MAX_INTEGER),
                e3={str(key): _within(value, -_MAX_INTEGER, _MAX_INTEGER) for key, value in head["e3"].items()},
            )
        except MalformedPayload:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise MalformedPayload(f"the head of a spectrum payload cannot be read: {error!r}") from error


def _within(value: Any, least: int, most: int) -> int:
    """An integer of JSON, which has no greatest one.  Raises ValueError."""
    number = int(value)
    if not least <= number <= most:
        raise ValueError(f"a number is not within {least} and {most}")
    return number


def _finite(value: Any) -> float:
    if not math.isfinite(number := float(value)):
        raise ValueError("a number is not finite")
    return number
