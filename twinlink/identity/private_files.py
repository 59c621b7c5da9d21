"""Files that only their owner can read, each of which appears whole or not at all."""

import contextlib
import fcntl
import os
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

SHARED_S = 0.5  # for the lock of a reader: a link must not wait for a program that was stopped while it held the lock
AGAIN_S = 0.005


@contextlib.contextmanager
def locked(folder: Path, *, exclusive: bool) -> Iterator[None]:
    """Hold the folder's lock: one program changes its files, or any number read them together.

    A reader that does not get the lock within `SHARED_S` goes on without it: each file is whole at any time.

    Raises OSError if there is no such folder.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if exclusive:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        else:
            _share(descriptor)
        yield
    finally:
        os.close(descriptor)


def _share(descriptor: int) -> None:
    deadline = time.monotonic() + SHARED_S
    while time.monotonic() < deadline:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(AGAIN_S)
        except OSError:  # some file systems have no locks
            return
        else:
            return


def write(path: Path, content: bytes) -> None:
    """Write a file with mode 0600, in place of the one that may be there.  Raises OSError."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files, by name, into a folder within that of an identity; the folder is made if it is not there.

    All belong to the owner of the identity's folder, who may be the user of a broker while root writes.  So a symbolic
    link in place of the folder is an error.  Raises OSError.
    """
    owner = folder.parent.stat()
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
        for name, content in files.items():
            temporary = f".{name}.{secrets.token_hex(8)}"
            made = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=descriptor)
            try:
                with os.fdopen(made, "wb") as opened:
                    os.fchown(made, owner.st_uid, owner.st_gid)
                    opened.write(content)
                    opened.flush()
                    os.fsync(made)
                os.replace(temporary, name, src_dir_fd=descriptor, dst_dir_fd=descriptor)
            except BaseException:
                os.unlink(temporary, dir_fd=descriptor)
                raise
    finally:
        os.close(descriptor)
