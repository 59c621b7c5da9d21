"""What an export is asked for, and what came of it: each format has a module with ``export(Request) -> Outcome``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Request:
    """What to export of one recording; ``flows``: names or patterns, ``table``: that of Parquet, messages or prbs."""

    files: Sequence[Path]
    out: Path
    flows: Sequence[str] = ("*",)
    table: str = "messages"
    overwrite: bool = False


class Outcome(NamedTuple):
    """What was exported.

    Attributes:
        written: how many records, rows or arrays, by file.
        what: that is counted.
        problems: for a person: what could not be exported, and why.
        notes: for a person: what else is to be known.
    """

    written: dict[Path, int]
    what: str
    problems: list[str]
    notes: list[str]
