"""Text at the border: files that other programs wrote, and names of files that are no UTF-8.

Editors, and shells on Windows, put a byte order mark (U+FEFF) before a text.  Linux gives a name in any octets; Python
has those that are no UTF-8 as surrogates (PEP 383), which no stream takes.
"""

from pathlib import Path

MARK = "\ufeff"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def decode(octets: bytes) -> str:
    """The text of a file in UTF-8, without its byte order mark.

    Raises ValueError that says what is wrong and in which line; the caller names the file.
    """
    try:
        return octets.decode("utf-8-sig")
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


def printable(name: object) -> str:
    r"""A name that any stream takes: of one that is no UTF-8, the octets stand as ``\xfc``."""
    return str(name).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
