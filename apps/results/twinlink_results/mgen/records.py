"""The bridge's record of each message, for joining with MGEN's logs.

A CSV file, gzip-compressed when its name ends in ``.gz``, one row for each message at each end of the link.  Instants
are Unix time in ns; absent values are empty.  T1 to T4 are those of the link's header and its
acknowledgement: T1 and T4 on the sending host's clock, T2 and T3 on the receiving one's.
"""

import contextlib
import csv
import gzip
import io
import time
import zlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, get_args, get_type_hints

from twinlink.process import files

MOST_OCTETS = 512 * 1024 * 1024  # that are read, unpacked: a damaged file must not take all memory
_LIMIT = 1 << 64  # of all numbers
_PATIENCE_S = 1.0  # the latest rows may be lost if a bridge is killed


class Row(NamedTuple):
    """One message at one end of the link."""

    end: str  # "in" or "out"
    epoch: str  # the sending session, 16 hex digits
    sequence: int  # the link's
    protocol: str  # "udp" or "tcp"
    mgen_flow: int
    mgen_sequence: int
    mgen_sent_ns: int  # MGEN's send time, of the first fragment
    octets: int  # of the message, MGEN's headers included
    fragments: int
    taken_ns: int | None = None  # in: MGEN's last octet was received
    sent_ns: int | None = None  # T1
    peer_received_ns: int | None = None  # T2
    peer_sent_ns: int | None = None  # T3; this and the next two only at the "in" end, from the acknowledgement
    received_ns: int | None = None  # T4
    rtt_ns: int | None = None  # T4 - T1 on the monotonic clock
    forwarded_ns: int | None = None  # out: the last octet was given to the listener's socket


_TYPES = [next(kind for kind in (get_args(hint) or (hint,))) for hint in get_type_hints(Row).values()]


class Recorder:
    """Writes rows to a file, at most a second late.  `add` may be called from any thread."""

    def __init__(self, path: Path) -> None:
        """Create the file, which stays empty until the first `write`.  Raises OSError."""
        self._raw: IO[bytes] = path.open("wb")
        self._path = path
        self._file: IO[str] | None = None
        self._rows: deque[Row] = deque()
        self._due = 0.0

    def add(self, row: Row) -> None:
        """Queue a row."""
        self._rows.append(row)

    def write(self) -> None:
        """Write the queued rows, if it is time to; from one thread only.  Raises OSError."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _PATIENCE_S
            with self._named():
                file = self._file = self._file or self._begin()
                writer = csv.writer(file, lineterminator="\n")
                while self._rows:
                    writer.writerow(self._rows.popleft())
                file.flush()
                self._raw.flush()

    def close(self) -> None:
        """Write the rest and close the file.  Raises OSError."""
        with self._named():
            if self._file or self._rows:
                self._due = 0.0
                self.write()
            if self._file:
                self._file.close()
            self._raw.close()

    def _begin(self) -> IO[str]:
        binary = gzip.GzipFile(fileobj=self._raw, mode="wb") if self._path.suffix == ".gz" else self._raw
        file = io.TextIOWrapper(binary, newline="")
        csv.writer(file, lineterminator="\n").writerow(Row._fields)
        return file

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Add the file to the error of a full disk: the system names none that is open."""
        try:
            yield
        except OSError as error:
            error.filename = str(self._path)
            raise


def read(path: Path) -> list[Row]:
    """The rows of a file, without a truncated last line of a killed bridge; none if it ended before it began.

    Raises:
        ValueError: the file is malformed; the message names it and the line.
    """
    try:
        octets = _unpacked(path) if path.suffix == ".gz" else files.read(path, MOST_OCTETS)
    except (OSError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return parse(octets, str(path)) if octets else []


def _unpacked(path: Path) -> bytes:
    parts: list[bytes] = []
    with contextlib.suppress(EOFError):  # the file was not closed: it is read as far as possible
        parts.extend(files.unpacked(path, MOST_OCTETS))
    return b"".join(parts)


def parse(octets: bytes, name: str) -> list[Row]:
    """The rows in a file's octets, as `read`; ``name`` is for error messages."""
    rows = []
    try:
        whole_lines = io.BytesIO(octets[: octets.rfind(b"\n") + 1])
        lines = csv.reader(io.TextIOWrapper(whole_lines, encoding="utf-8", newline=""))
        if tuple(next(lines, ())) != Row._fields:
            raise ValueError(f"{name}: the first line does not name the columns of a bridge's records")
        for number, line in enumerate(lines, 2):
            try:
                rows.append(_row(line))
            except ValueError as error:
                raise ValueError(f"{name}, line {number}: it cannot be read: {error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{name} cannot be read: {error}") from error
    return rows


def _row(fields: list[str]) -> Row:
    values: list[Any] = [kind(field) if field else None for kind, field in zip(_TYPES, fields, strict=True)]
    if None in values[:9]:
        raise ValueError("a field is empty that must not be")
    if any(isinstance(value, int) and not 0 <= value < _LIMIT for value in values):
        raise ValueError(f"a number is not from 0 to {_LIMIT - 1}")
    return Row(*values)
