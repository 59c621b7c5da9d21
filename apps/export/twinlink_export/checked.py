"""Objects of a file of JSON that another program wrote: each value is checked when it is read."""

from pathlib import Path
from typing import Any

from twinlink.errors import TwinlinkError
from twinlink.process import files
from twinlink.process.text import parse_json

MAX_JSON_OCTETS = 128 * 1024 * 1024
MAX_INTEGER = 2**63 - 1


class NotReadable(TwinlinkError, ValueError):
    """A file cannot be imported; the message names the file and the place."""


class Fields:
    """An object; ``where`` names it, such as ``run.sigmf-meta: captures[2]``; of a file it ends with a colon."""

    def __init__(self, where: str, value: object) -> None:
        if not isinstance(value, dict):
            raise NotReadable(f"{where.removesuffix(':')} is no object")
        self.where, self._fields = where, value

    def __contains__(self, key: str) -> bool:
        return self._fields.get(key) is not None

    def wrong(self, key: str, expected: str) -> NotReadable:
        """The error for a value."""
        value, place = self._fields.get(key), self._place(key)
        if value is None:
            return NotReadable(f"{place} is missing: {expected} is expected")
        shown = repr(value) if isinstance(value, str | int | float) else f"a {type(value).__name__}"
        return NotReadable(f"{place} is {shown[:100]}, not {expected}")

    def _place(self, key: str) -> str:
        return f"{self.where} {key}" if self.where.endswith(":") else f"{self.where}.{key}"

    def integer(self, key: str, least: int = 0, most: int = MAX_INTEGER, default: int | None = None) -> int:
        """A whole number."""
        value = self._fields.get(key, default)
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(key, f"a whole number from {least} to {most}")
        return value

    def number(self, key: str, least: float, most: float, default: float | None = None) -> float:
        """A number."""
        value = self._fields.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.wrong(key, f"a number from {least:g} to {most:g}")  # NaN is within no bounds
        return float(value)

    def text(self, key: str, default: str | None = None, most: int = 1024) -> str:
        """A text."""
        value = self._fields.get(key, default)
        if not isinstance(value, str) or len(value) > most:
            raise self.wrong(key, f"a text of at most {most} characters")
        return value

    def object(self, key: str) -> "Fields":
        """An object."""
        return Fields(self._place(key), self._fields.get(key))

    def objects(self, key: str) -> list["Fields"]:
        """A list of objects; empty where it is missing."""
        value = self._fields.get(key) or []
        if not isinstance(value, list):
            raise self.wrong(key, "a list")
        return [Fields(f"{self._place(key)}[{number}]", one) for number, one in enumerate(value)]

    def raw(self, key: str) -> Any:
        """The value, not checked."""
        return self._fields.get(key)


def read_json(path: Path) -> Any:
    """The content of a file.  Raises OSError, also above `MAX_JSON_OCTETS`; NotReadable where it is no JSON."""
    octets = files.read(path, MAX_JSON_OCTETS)
    try:
        return parse_json(octets)
    except (ValueError, RecursionError) as error:
        raise NotReadable(f"{path} is no JSON: {error}") from None
