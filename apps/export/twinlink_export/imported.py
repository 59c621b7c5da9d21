"""What an import is made of, and what came of it."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

_STEP = 1024 * 1024


class Radio(NamedTuple):
    """What a file may not say of the carrier.

    Attributes:
        scs_hz: subcarrier spacing.
        centre_hz: carrier centre; 0: not known.
        beta: a value of I/Q is the gNB's int16 times beta.
    """

    scs_hz: int = 30_000
    centre_hz: float = 0.0
    beta: float = 1 / 2048


class Imported(NamedTuple):
    """What was imported.

    Attributes:
        number: of ``what``, such as records.
        notes: for a person: what was left out, or made up.
    """

    number: int
    what: str
    notes: list[str]


def digest(path: Path, *others: str) -> dict[str, Any]:
    """A file as the manifest names it, with its hash, and the other hashes that are asked for.  Raises OSError."""
    hashes = {name: hashlib.new(name) for name in ("sha256", *others)}
    octets = 0
    with path.open("rb") as file:
        while part := file.read(_STEP):
            octets += len(part)
            for one in hashes.values():
                one.update(part)
    return {"name": path.name, "octets": octets, **{name: one.hexdigest() for name, one in hashes.items()}}


def series_of(sources: Iterable[Mapping[str, Any]]) -> str:
    """The name of the recording: the same files give the same."""
    return hashlib.sha256("".join(source["sha256"] for source in sources).encode()).hexdigest()[:16]
