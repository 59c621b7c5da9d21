"""Payload of flow ``kpm``: how much of the uplink is used, by the gNB's own account, and by what a twin makes of it.

The measurement is that of 3GPP TS 28.552 clause 5.1.1.2: PRBs used for data traffic (RRU.PrbUsedUl) of those available
(RRU.PrbAvailUl), here as exact sums over a granularity period, of which the percentage follows (RRU.PrbTotUl, with all
else that the cell uses PRBs for; here that is not known).  In network byte order, 56 octets:

    offset  octets
         0       1   version: 1
         1       1   source: 1 the gNB's scheduler, 2 the twin's analysis of the spectrum
         2       2   PRBs of the carrier
         4       4   slots: in how many slots the PRBs were counted, at different times
         8       4   missing: slots of the period that are known, and of which the usage is not; of the twin's figure 0
        12       4   0
        16       8   begin of the granularity period, Unix time in ns
        24       8   granularity period, ns
        32       8   used: PRBs with uplink traffic of UEs, summed over slots (or their symbols)
        40       8   available: PRBs of the carrier, summed over the same
        48       8   session: of the twin's figure, the epoch of the exporter whose records it is of; of the gNB's, 0

A PRB counts once, however many UEs share it; one on which an interferer is alone is not used.  Where a source reports
its grants slot by slot, those in which no UE was granted anything may be left out of both sums (docs/fidelity.md).
"""

import struct
from dataclasses import dataclass
from enum import IntEnum

from .digest import MAX_TIME_NS, WINDOW_NS, begin_of
from .errors import MalformedPayload
from .slots import MAX_PRBS

FLOW = "kpm"
VERSION = 1
MAX_PERIOD_NS = 3600 * 1_000_000_000
# Of fewer slots, and with a larger share of them missing, a usage says too little: the standard error of 25 slots that
# are used as a whole or not at all is 10 percentage points, by which a twin's picture counts as wrong.
MIN_SLOTS, MAX_MISSING = 25, 0.1
MAX_COUNT = 2**32 - 1  # of slots: a gNB whose clock is set may seem to have left out more
_LAYOUT = struct.Struct(">BBHII4xQQQQQ")


class Source(IntEnum):
    """What a figure is of."""

    GNB = 1
    TWIN = 2


@dataclass(frozen=True, slots=True)
class Kpm:
    """The uplink usage of one granularity period; the module says what the fields mean."""

    source: Source
    n_prbs: int
    slots: int
    missing: int
    begin_ns: int
    period_ns: int
    used: int
    available: int
    session: int = 0

    @property
    def usage(self) -> float | None:
        """Share of the available PRBs that was used, from 0 to 1; None if it is of too few slots to say."""
        if self.slots < MIN_SLOTS or self.missing > MAX_MISSING * (self.slots + self.missing):
            return None
        return self.used / self.available

    @property
    def is_window(self) -> bool:
        """Whether its period is a window of a digest (`twinlink.digest`)."""
        return self.period_ns == WINDOW_NS and self.begin_ns % WINDOW_NS == 0

    def described(self) -> dict[str, int | float | None]:
        """For a log or a file."""
        return {
            "usage": self.usage, "used": self.used, "available": self.available, "slots": self.slots,
            "missing": self.missing,
        }  # fmt: skip

    def encode(self) -> bytes:
        """The payload.  Raises ValueError for a value that does not fit."""
        try:
            payload = _LAYOUT.pack(
                VERSION, self.source, self.n_prbs, self.slots, self.missing, self.begin_ns, self.period_ns, self.used,
                self.available, self.session,
            )  # fmt: skip
            self.decode(payload)
        except (struct.error, MalformedPayload) as error:
            raise ValueError(f"a KPM cannot be encoded: {error}") from error
        return payload

    @classmethod
    def decode(cls, payload: bytes | memoryview) -> "Kpm":
        """Read a payload.  Raises MalformedPayload saying what is wrong."""
        if len(payload) != _LAYOUT.size:
            raise MalformedPayload(f"a KPM has {_LAYOUT.size} octets, not {len(payload)}")
        version, source, n_prbs, slots, missing, begin_ns, period_ns, used, available, session = _LAYOUT.unpack(payload)
        if version != VERSION or source not in tuple(Source) or any(payload[12:16]):
            raise MalformedPayload(f"a KPM of version {version}, source {source} is not known here")
        if not 0 < n_prbs <= MAX_PRBS:
            raise MalformedPayload(f"a carrier of {n_prbs} PRBs, of at most {MAX_PRBS}")
        if begin_ns > MAX_TIME_NS or not 0 < period_ns <= MAX_PERIOD_NS:
            raise MalformedPayload(f"a granularity period of {period_ns} ns from {begin_ns} ns")
        if used > available or available < slots * n_prbs or available % n_prbs or (available and not slots):
            raise MalformedPayload(f"{used} PRBs of {available} in {slots} slots of {n_prbs}")
        return cls(Source(source), n_prbs, slots, missing, begin_ns, period_ns, used, available, session)


class Usage:
    """Counts the PRBs that are used in a window.

    Args:
        n_prbs: PRBs of the carrier.
        begin_ns: of the window, Unix time.
    """

    def __init__(self, n_prbs: int, begin_ns: int) -> None:
        self.n_prbs, self.begin_ns = n_prbs, begin_ns
        self.missing = 0
        self._slots = self._used = self._available = 0
        self._last_ns: int | None = None

    def add(self, observed_ns: int, used: int) -> None:
        """Count the used PRBs of a slot, or of one of its symbols, which have one time."""
        self._slots += observed_ns != self._last_ns
        self._last_ns = observed_ns
        self._used += used
        self._available += self.n_prbs

    def kpm(self, source: Source, session: int = 0) -> Kpm:
        """What was counted until now."""
        return Kpm(
            source, self.n_prbs, self._slots, min(self.missing, MAX_COUNT), self.begin_ns, WINDOW_NS, self._used,
            self._available, session,
        )  # fmt: skip


class GnbUsage:
    """Counts the PRBs that a gNB grants, window by window; the first window, which may not be whole, is left out.

    Args:
        n_prbs: PRBs of the carrier.
    """

    def __init__(self, n_prbs: int) -> None:
        self._n_prbs = n_prbs
        self._usage: Usage | None = None  # of the present window
        self._whole = False

    def add(self, time_ns: int, used: int | None, missing: int = 0) -> Kpm | None:
        """Count a slot at this Unix time, after so many missing ones; returns the KPM of the window before, at its end.

        ``used`` is None if it is not known; a source of which it never was has no KPM.
        """
        begin_ns, usage, ended = begin_of(time_ns), self._usage, None
        if usage is None and used is None:
            return None
        if usage is None or begin_ns != usage.begin_ns:
            if usage and self._whole and begin_ns > usage.begin_ns:
                ended = usage.kpm(Source.GNB)
            self._whole = usage is not None and begin_ns > usage.begin_ns  # not if the clock was set back
            self._usage = usage = Usage(self._n_prbs, begin_ns)
        usage.missing += missing + (used is None)
        if used is not None:
            usage.add(time_ns, used)
        return ended
