"""Files from elsewhere, read up to a limit: a small one may unpack to more than this host's memory."""

import errno
import gzip
from pathlib import Path

_STEP = 1024 * 1024


def read(path: Path, most: int) -> bytes:
    """The content.  Raises OSError, also with EFBIG if it has more than ``most`` octets."""
    with path.open("rb") as file:
        octets = file.read(most + 1)
    if len(octets) > most:
        raise _too_long(path, "has", most)
    return octets


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
