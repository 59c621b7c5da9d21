"""The service models spectrum (RAN function 1) and L1-KPM (2): the content of E3AP's opaque octet strings.

Spectrum-IQDataIndication is in `indication`; codecs have the octets.  L1-KPM carries I/Q and no KPM.  `KPM_FUNCTION` is
twinlink's own, of its RAN emulator: the payload of flow ``kpm`` once a second, in hexadecimal, as
``{"kpm": "0101..."}`` in every encoding.
"""

import json
from dataclasses import dataclass
from typing import Any

from .errors import MalformedPdu
from .indication import IqDataIndication, Octets

RAN_FUNCTION = 1
TELEMETRY_IQ = 1  # in the PDU; where RAN function 2 is offered, it is that of sensing ranges
TELEMETRY_SENSING = 1
L1_KPM_FUNCTION = 2
TELEMETRY_SLOT = 1  # of RAN function 2: I/Q of a slot in shared memory
# Of RAN function 2 in NVIDIA's Aerial, where each is a stream of its own: the grants of UEs (first PRB, and PRBs); and
# before them I/Q, time, frame, slot, cell, antennas, and the number of cells.
TELEMETRY_GRANTS = (25, 26)
TELEMETRY_STREAMS = (TELEMETRY_SLOT, 4, 5, 6, 7, 8, 10, *TELEMETRY_GRANTS)
KPM_FUNCTION, KPM_NAME = 100, b"twinlink-KPM"
TELEMETRY_KPM = 1  # of that function
ALL_SYMBOLS = 0x3FFF
CONTROL_PRB_BLOCK, CONTROL_SENSING_POLICY = 1, 2
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
class SensingPolicyControl:
    """In dAppControlAction, since G2: which uplink symbols the MAC keeps free for sensing; it replaces the last policy.

    Attributes:
        mask_per_slot: for each slot of a frame, 1 to 160, a mask of 14 symbols.
        deactivate: clear the policy, whatever the masks.
        validity_period: in s, 1 to 3600.
    """

    mask_per_slot: tuple[int, ...]
    deactivate: bool = False
    validity_period: int | None = None


@dataclass(frozen=True, slots=True)
class PrbBlacklistReport:
    """In dAppReport: the PRBs that the dApp found."""

    blacklisted_prbs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PrbBlockedControl:
    """In xAppControlAction: an xApp's request to the dApp."""

    blocked_prbs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SlotIndication:
    """L1KPM-Indication: the I/Q of a slot has been written to shared memory, which `ran_buffers` describes.

    Attributes:
        shm_name: of the shared memory, such as ``/e3_ran_buffers``; 1 to 63 octets.
        fh_buffer_index, fh_write_index: buffer, and row in it.
        timestamp: when it was written, in ns of a clock that the PDU does not name.
        sfn, slot: system frame number, and slot in the frame.
        n_rx_ant: antennas in the row; others hold old data.
        valid_symbol_mask: bit s is set if symbol s is uplink; the gNB itself transmits in others.
        n_cells: cells of the slot, each with a row of its own; in the JSON of NVIDIA's agent only.
        others: the same slot of the other cells, where the agent names their rows.
        names_cells: whether it does, as NVIDIA's after 26-1.2.
        grants: of the UEs in the slot, each first PRB and PRBs; in the JSON of NVIDIA's agent only.
    """

    shm_name: str
    fh_buffer_index: int
    fh_write_index: int
    timestamp: int
    sfn: int
    slot: int
    cell_id: int | None = None
    n_rx_ant: int | None = None
    valid_symbol_mask: int | None = None
    n_cells: int | None = None
    others: tuple["SlotIndication", ...] = ()
    names_cells: bool = False
    grants: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class SensingIndication:
    """The ranges that the MAC left free in a slot have been written to shared memory (`sensing_ring`).

    Attributes:
        timestamp: in ns of the gNB's monotonic clock.
        sfn, slot: system frame number, and slot in the frame.
        shm_name: of the shared memory, such as ``/e3_l2_sensing``.
        shm_write_idx: entry in it.
        n_ranges: ranges of the entry, 0 to 128.
        beam: 0 to 3.
    """

    timestamp: int
    sfn: int
    slot: int
    shm_name: str
    shm_write_idx: int
    n_ranges: int
    beam: int | None = None


# The controls of RAN function 1, and what wraps each since G2.
WRAPPED: dict[type[Any], str] = {
    PrbBlacklistControl: "prbBlacklistControl",
    SensingPolicyControl: "sensingPolicyControl",
}

Structure = (
    IqDataIndication
    | RanFunctionData
    | PrbBlacklistControl
    | SensingPolicyControl
    | PrbBlacklistReport
    | PrbBlockedControl
    | SlotIndication
    | SensingIndication
)


def encode_kpm(payload: bytes) -> bytes:
    """The ``protocol_data`` of an indication of `KPM_FUNCTION`, in every encoding."""
    return json.dumps({"kpm": payload.hex()}).encode()


def decode_kpm(octets: Octets) -> bytes:
    """The payload of flow ``kpm`` in it; octets after the object's end are not allowed.  Raises MalformedPdu."""
    try:
        return bytes.fromhex(json.loads(bytes(octets))["kpm"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise MalformedPdu(f"{len(octets)} octets are no report of KPMs: {error!r}") from error
