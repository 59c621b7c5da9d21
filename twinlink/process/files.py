"""Files from elsewhere, read up to a limit: a small one may unpack to more than this host's memory.

A file that is written here gets its name when it is whole.
"""

import errno
import gzip
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

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


def unpacked(path: Path, most: int) -> Iterator[bytes]:
    """The content of a gzip file in parts, of all its members.

    Raises OSError, also with EFBIG if it unpacks to more than ``most`` octets; after the last part EOFError if the file
    was cut off; zlib.error if it is damaged.
    """
    count = 0
    with gzip.open(path) as file:
        while part := file.read1(_STEP):  # not `read`, which has nothing of a part that is cut off
            count += len(part)
            if count > most:
                raise _too_long(path, "unpacks to", most)
            yield part


def check_unpacked(path: Path, most: int) -> None:
    """Raise what `unpacked` does, keeping nothing in memory."""
    for _ in unpacked(path, most):
        pass


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give the path, beside it, under which to write; at the end it gets its name, after an error it is removed."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.touch()  # where it cannot be written, the error says so before any work
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def scratch(path: Path) -> Iterator[IO[bytes]]:
    """A file without a name for what is written to ``path`` later; an error names that one."""
    try:
        file = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115  (closed below)
    except OSError as error:
        error.filename = str(path)
        raise
    with file:
        yield file


def _too_long(path: Path, what: str, most: int) -> OSError:
    return OSError(errno.EFBIG, f"it {what} more than {most:,} octets, the most that is read", str(path))
