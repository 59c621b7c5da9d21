"""POSIX shared memory of a gNB, by the name that an indication gives it."""

import os
import re
import stat
from pathlib import Path

from .errors import E3Error

DIRECTORY = Path("/dev/shm")
_NAME = re.compile(r"/[A-Za-z0-9_.-]{1,62}")


class SharedMemoryError(E3Error, OSError):
    """Shared memory that is missing, that cannot be read, or that has another layout than expected."""


def shared_memory_path(name: str) -> Path:
    """The file of the shared memory ``/name``, as ``shm_open`` finds it.  Raises SharedMemoryError."""
    if not _NAME.fullmatch(name) or name in ("/.", "/.."):
        raise SharedMemoryError(f"{name[:80]!r} is no name of shared memory: a slash and a file name are expected")
    return DIRECTORY / name[1:]


class SharedMemoryFile:
    """The file of a gNB's shared memory, open for reading.

    It is read, not mapped: a file that is cut short under a mapping would end the process (SIGBUS).

    Raises SharedMemoryError.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._path = shared_memory_path(name)
        try:
            # Without O_NONBLOCK, a FIFO of that name would be waited for.
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise SharedMemoryError(
                f"the gNB's shared memory {self._path} cannot be opened: {error.strerror}; run on the gNB's host, in "
                "a container with its /dev/shm, as a user that may read it"
            ) from error
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._descriptor)
            raise SharedMemoryError(f"the gNB's shared memory {self._path} is no regular file")
        self._identity = status.st_dev, status.st_ino  # not given to another file as long as this one is open

    def is_current(self) -> bool:
        """Whether no other file has this name: a gNB that restarts makes another one, one that ends leaves none."""
        try:
            status = self._path.stat()
        except OSError:
            return True
        return (status.st_dev, status.st_ino) == self._identity

    def read(self, size: int, offset: int) -> bytes:
        """So many octets from there.  Raises SharedMemoryError if the file ends before."""
        octets = os.pread(self._descriptor, size, offset)
        if len(octets) < size:
            raise self._too_short(offset + size)
        return octets

    def read_into(self, buffer: memoryview, offset: int) -> None:
        """Fill the buffer with what is there.  Raises SharedMemoryError, as `read`."""
        if os.preadv(self._descriptor, (buffer,), offset) < len(buffer):
            raise self._too_short(offset + len(buffer))

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _too_short(self, size: int) -> SharedMemoryError:
        return SharedMemoryError(f"the gNB's shared memory {self._path} has less than {size} octets")
