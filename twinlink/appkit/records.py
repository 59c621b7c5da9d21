"""The raw records of a sweep: one row per message and side, from which everything else is computed.

A cell is one subject (a transport of twinlink, or a raw baseline) at one payload size, direction and mode.  It is
measured in rounds, between which other cells have their turn.  Each side records what it saw:

* the sender a row for each message it sent (`SENT`),
* the receiver a row for each message that arrived, in order of arrival, duplicates included (`RECEIVED`).

The files are gzip-compressed CSV with empty fields for absent values (a message without an ack).
"""

import csv
import gzip
import io
import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..process import files

MOST_OCTETS = 512 * 1024 * 1024  # of an unpacked file, about four million rows: a damaged one must not take all memory
PART_ROWS = 65536

Table = NDArray[np.void]

# All instants are Unix time in ns.  T1, T4 are on the sender's clock, T2, T3 on the receiver's.
SENT = np.dtype(
    [
        ("round", "i4"),
        ("sequence", "i8"),  # from 0 in each round, warm-up not included
        ("octets", "i8"),  # of payload
        ("scheduled_ns", "i8"),  # scheduled send time; in a closed loop the actual one
        ("sent_ns", "i8"),  # T1
        ("acknowledged", "?"),  # whether the ack came; the next four are 0 when not
        ("peer_received_ns", "i8"),  # T2
        ("peer_sent_ns", "i8"),  # T3
        ("received_ns", "i8"),  # T4
        ("rtt_ns", "i8"),  # T4 - T1 on the monotonic clock
    ]
)
RECEIVED = np.dtype(
    [("round", "i4"), ("sequence", "i8"), ("octets", "i8"), ("sent_ns", "i8"), ("received_ns", "i8")],
)
TABLES = {"sent": SENT, "received": RECEIVED}  # by the side that recorded it
_OF_THE_ACK = ("peer_received_ns", "peer_sent_ns", "received_ns", "rtt_ns")


def file(folder: Path, name: str, side: str) -> Path:
    """Path of the table of a cell, or of an application's flow; ``side`` is a key of `TABLES`."""
    return folder / f"{name}.{side}.csv.gz"


def write(path: Path, table: Table) -> None:
    """Write a table of dtype `SENT` or `RECEIVED` to ``path`` (``.csv.gz``)."""
    names = table.dtype.names or ()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name for name in names if name != "acknowledged"])
    blank = len(_OF_THE_ACK)
    for row in table.tolist():
        if "acknowledged" in names:
            known, acknowledged, of_the_ack = row[:5], row[5], row[6:]
            writer.writerow(known + (of_the_ack if acknowledged else ("",) * blank))
        else:
            writer.writerow(row)
    path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def read(path: Path) -> Table:
    """The table in a file that `write` made.

    Raises:
        ValueError: the file is no such table; the message names the file and the line.
    """
    try:
        files.check_unpacked(path, MOST_OCTETS)
        with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file)
            first = next(lines, [])
            for dtype in TABLES.values():
                if first == [name for name in dtype.names or () if name != "acknowledged"]:
                    return np.concatenate([np.zeros(0, dtype), *_parts(path, dtype, lines)])
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    raise ValueError(f"{path}: the first line names the columns of neither a sent nor a received record")


def _parts(path: Path, dtype: np.dtype[np.void], lines: Iterator[list[str]]) -> Iterator[Table]:
    """The table in parts: the lines of a whole file take ten times its memory.  Raises ValueError."""
    number = 1
    while part := list(itertools.islice(lines, PART_ROWS)):
        table = np.zeros(len(part), dtype)
        for row, line in enumerate(part):
            number += 1
            try:
                if dtype is SENT:
                    acknowledged = line[5] != ""
                    table[row] = (*map(int, line[:5]), acknowledged, *(int(field or 0) for field in line[5:]))
                else:
                    table[row] = tuple(map(int, line))
            except (ValueError, IndexError, TypeError, OverflowError) as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
        yield table
