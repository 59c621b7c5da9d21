"""The keys of SigMF that export and import share (docs/export.md)."""

from datetime import UTC, datetime
from pathlib import Path

SIGMF_VERSION = "1.2.6"
EXTENSIONS = [
    {"name": "dapp", "version": "1.0.0", "optional": False},
    {"name": "twinlink", "version": "1.0.0", "optional": True},
]
META, DATA = ".sigmf-meta", ".sigmf-data"
CI16, CF32 = "ci16_le", "cf32_le"
SYMBOL, SLOTS = "symbol", "slots"  # twinlink:records
RECORD_LABELS = {SYMBOL: "record", SLOTS: "slot"}
DETECTED, BLOCKED = "detected", "blocked"


def pair(path: Path) -> tuple[Path, Path]:
    """The metadata file and the data file, given either of them or their name without suffix."""
    stem = path.with_suffix("") if path.suffix in (META, DATA) else path
    return stem.with_name(stem.name + META), stem.with_name(stem.name + DATA)


def to_datetime(time_ns: int) -> str:
    """Unix time as ``core:datetime`` has it, to the ns."""
    seconds, ns = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ns:09d}Z"


def from_datetime(text: str) -> int:
    """The inverse; a leap second counts as the last of its minute.  Raises ValueError."""
    head, _, fraction = text.removesuffix("Z").partition(".")
    if not text.endswith("Z") or not (fraction.isdecimal() or not fraction):
        raise ValueError(f"{text!r} is not a time such as 2026-11-27T16:00:00Z")
    moment = datetime.fromisoformat(head.replace(":60", ":59")).replace(tzinfo=UTC)
    return round(moment.timestamp()) * 1_000_000_000 + int(fraction[:9].ljust(9, "0") or 0)
