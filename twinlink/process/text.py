"""Text at the border: files that other programs wrote, and names of files that are no UTF-8.

Editors, and shells on Windows, put a byte order mark (U+FEFF) before a text.  Linux gives a name in any octets; Python
has those that are no UTF-8 as surrogates (PEP 383), which no stream takes.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

MARK = "\ufeff"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_OCTETS = 0xDC00  # PEP 383: the surrogate of an octet is this much above it
_OF_OCTETS = range(_OCTETS + 0x80, _OCTETS + 0x100)


def decode(octets: bytes) -> str:
    """The text of a file in UTF-8, without its byte order mark.

    Raises ValueError that says what is wrong and in which line; the caller names the file.
    """
    octets = octets.removeprefix(MARK.encode())
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        if octets[:2] in _UTF_16:
            raise ValueError("it begins with the byte order mark of UTF-16: save it as UTF-8") from None
        line = octets.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} is no UTF-8 (octet 0x{octets[error.start]:02x}): save it as UTF-8") from None


def read(path: Path) -> str:
    """The text of a file in UTF-8, without its byte order mark.  Raises OSError, and ValueError as `decode` does."""
    return decode(path.read_bytes())


def unmarked(line: str) -> str:
    """A line without byte order marks: one stands in the middle where a marked file was pasted or appended."""
    return line.replace(MARK, "")


def printable(text: str) -> str:
    r"""A text that any stream takes: octets that are no UTF-8 stand as ``\xfc``, other surrogates as ``\ud800``."""
    return _SURROGATE.sub(_escaped, text)


def on_one_line(text: str) -> str:
    """Escape what is not printable: a name that a peer chose must neither start a new line nor control the terminal."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in printable(text))


def to_json(value: Any, **options: Any) -> str:
    """As `json.dumps`, in ASCII; strings are `printable`, since other readers refuse half of a surrogate pair."""
    text = json.dumps(value, **options)
    return json.dumps(_printable_in(value), **options) if r"\ud" in text else text


def parse_json(octets: bytes) -> Any:
    """The value in a file of JSON.  Raises ValueError, RecursionError.

    A key that an object has twice is an error: readers take different values of it (RFC 8259 section 4).
    """
    return json.loads(octets, parse_constant=_no_constant, object_pairs_hook=_object)


def _no_constant(constant: str) -> float:
    raise ValueError(f"{constant} is no number of JSON")


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        twice = next(name for name, times in Counter(name for name, _ in members).items() if times > 1)
        raise ValueError(f"an object has the key {twice[:100]!r} twice")
    return found


def _printable_in(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {_printable_in(name): _printable_in(one) for name, one in value.items()}
    return [_printable_in(one) for one in value] if isinstance(value, list | tuple) else value


def _escaped(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number - _OCTETS:02x}" if number in _OF_OCTETS else f"\\u{number:04x}"
