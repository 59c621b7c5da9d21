"""Files from elsewhere, read up to a limit: a small one may unpack to more than this host's memory."""

import errno
import gzip
import os
from pathlib import Path

_STEP = 1024 * 1024


def read(path: Path, most: int) -> bytes:
    """The content.  Raises OSError, also with EFBIG if it has more than ``most`` octets."""
    parts, count = [], 0
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > most:
            raise _too_long(path, "has", most)
        while part := file.read(_STEP):  # not `most` at once, for which as much memory would be allocated
            parts.append(part)
            count += len(part)
            if count > most:
                raise _too_long(path, "has", most)
    return b"".join(parts)


def check_unpacked(path: Path, most: int) -> None:
    """Raise OSError with EFBIG if a gzip file unpacks to more than ``most`` octets; keeps none of them in memory.

    Raises EOFError and zlib.error as `gzip` does, if the file is not whole.
    """
    count = 0
    with gzip.open(path) as file:
        while octets := file.read(_STEP):
            count += len(octets)
            if count > most:
                raise _too_long(path, "unpacks to", most)


def _too_long(path: Path, what: str, most: int) -> OSError:
    return OSError(errno.EFBIG, f"it {what} more than {most:,} octets, the most that is read", str(path))
