"""The spectrum service model (RAN function 1): the content of E3AP's opaque octet strings.

Spectrum-IQDataIndication is in `indication`; codecs have the octets.
"""

from dataclasses import dataclass

from .indication import IqDataIndication

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


Structure = IqDataIndication | RanFunctionData | PrbBlacklistControl | PrbBlacklistReport | PrbBlockedControl
