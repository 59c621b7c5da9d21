"""The spectrum service model (RAN function 1): the content of E3AP's opaque octet strings.

Spectrum-IQDataIndication, which is on the hot path, is in `indication`.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

from . import grammar
from .indication import Octets
from .pdu import decode_type, encode_type, from_asn1, to_asn1

RAN_FUNCTION = 1
TELEMETRY_IQ = 1
CONTROL_PRB_BLOCK = 1
N_PRBS_MAX = 273  # PRB indices are 0 to 272


@dataclass(frozen=True, slots=True)
class RanFunctionData:
    """Description of the service model in setupResponse; ``name`` 1 to 32 and ``description`` 1 to 128 octets."""

    name: bytes
    version: int
    description: bytes


@dataclass(frozen=True, slots=True)
class PrbBlacklistControl:
    """In dAppControlAction: the full list of blocked PRBs, replacing the last; empty clears it.

    Attributes:
        blacklisted_prbs: indices 0 to 272.
        sampling_threshold: deliver one I/Q capture of this many, 0 to 100; None: unchanged.
        validity_period: in s, 1 to 3600; old OpenAirInterface ignores it.
    """

    blacklisted_prbs: tuple[int, ...]
    sampling_threshold: int | None = None
    validity_period: int | None = None


@dataclass(frozen=True, slots=True)
class PrbBlacklistReport:
    """In dAppReport: the PRBs that the dApp found."""

    blacklisted_prbs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PrbBlockedControl:
    """In xAppControlAction: an xApp's request to the dApp."""

    blocked_prbs: tuple[int, ...]


_TYPES: dict[type[Any], str] = {
    RanFunctionData: "Spectrum-RanFunctionData",
    PrbBlacklistControl: "Spectrum-PRBBlacklistControl",
    PrbBlacklistReport: "Spectrum-PRBBlacklistReport",
    PrbBlockedControl: "Spectrum-PRBBlockedControl",
}
Structure = TypeVar("Structure", RanFunctionData, PrbBlacklistControl, PrbBlacklistReport, PrbBlockedControl)


def encode_structure(
    structure: RanFunctionData | PrbBlacklistControl | PrbBlacklistReport | PrbBlockedControl,
) -> bytes:
    """The octets of a structure.  Raises InvalidPdu, GrammarMissing."""
    return encode_type(grammar.spectrum(), _TYPES[type(structure)], to_asn1(structure))


def decode_structure(kind: type[Structure], octets: Octets) -> Structure:
    """Read a structure, of the kind that the enclosing PDU implies.  Raises MalformedPdu, GrammarMissing."""
    structure: Structure = from_asn1(kind, decode_type(grammar.spectrum(), _TYPES[kind], octets))
    return structure
