"""The folder of an identity: what is read there belongs to root or to this user, and no other user can change it.

Each file is opened first, and then the descriptor is checked and read: nothing can be put in its place in between.
Symbolic links, which the volumes of Kubernetes have, are followed one by one, so that each of them, and each folder on
the way, is checked as the file is.  The folders above that of the identity are not looked at.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePath

from ..errors import ConfigurationError

SHARED_S = 0.5  # for the lock of a reader: a link must not wait for a program that was stopped while it held the lock
AGAIN_S = 0.005
MAX_OCTETS = 16 * 1024 * 1024  # of a file: some 20,000 keys of peers
MAX_LINKS = 40  # as Linux has it
_OTHERS_WRITE, _OTHERS_READ = 0o022, 0o005  # the group may read: a container's volume belongs to the container's group

Signature = tuple[tuple[int, ...], ...]


class Folder:
    """An open folder; for one thread.

    Attributes:
        path: for messages.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: Path, *, exclusive: bool = False) -> Iterator["Folder"]:
        """Open and lock a folder: one program changes its files, or any number read them together.

        A reader that does not get the lock within `SHARED_S` goes on without it: each file is whole at any time.

        Raises:
            OSError: there is no such folder.
            ConfigurationError: it belongs to another user, or others can change it.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _check(os.fstat(descriptor), path)
            if exclusive:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            else:
                _share(descriptor)
            yield cls(path, descriptor)
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def inner(self, name: str, *, make: bool = False) -> Iterator["Folder"]:
        """Open a folder within this one; ``make``: unless it is there, it is made.  Raises as `opened` does."""
        path = self.path / name
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=self._descriptor)
        with _named(path):  # a symbolic link in place of the folder is an error
            descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self._descriptor)
        try:
            _check(os.fstat(descriptor), path)
            yield Folder(path, descriptor)
        finally:
            os.close(descriptor)

    def has(self, name: str) -> bool:
        """Whether there is anything of this name, even a link that leads nowhere."""
        try:
            os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def read(self, name: str, *, private: bool = False) -> bytes:
        """The content of a file.

        Raises:
            OSError: it is not there, or cannot be read.
            ConfigurationError: it belongs to another user, or others can change it; or read it, if it is ``private``.
        """
        path = self.path / name
        with _named(path):
            descriptor = self._open(name, _check)
            with os.fdopen(descriptor, "rb") as file:
                found = os.fstat(descriptor)
                if not stat.S_ISREG(found.st_mode):
                    raise OSError(errno.EINVAL, "it is no file")
                if private and found.st_mode & _OTHERS_READ:
                    raise ConfigurationError(
                        f"{path} has mode {stat.S_IMODE(found.st_mode):04o}, so that other users can read the secret: "
                        f"chmod 600 {path}"
                    )
                if len(content := file.read(MAX_OCTETS + 1)) > MAX_OCTETS:
                    raise OSError(errno.EFBIG, f"it has more than {MAX_OCTETS:,} octets, the most that is read")
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write a file with mode 0600, in place of the one that may be there: whole, or not at all.  Raises OSError."""
        temporary = f".{name}.{secrets.token_hex(8)}"
        with _named(self.path / name):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            made = os.open(temporary, flags, 0o600, dir_fd=self._descriptor)
            try:
                with os.fdopen(made, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(made)
                self._rename(temporary, self, name)
            except BaseException:
                os.unlink(temporary, dir_fd=self._descriptor)
                raise

    def write_folder(self, name: str, files: Mapping[str, bytes]) -> None:
        """Write files, by name, into a folder within this one, which is made if it is not there.  Raises as `inner`."""
        with self.inner(name, make=True) as inner:
            for file, content in files.items():
                inner.write(file, content)

    def move(self, name: str, to: "Folder") -> None:
        """Put what has this name into another folder, in place of the one that may be there.  Raises OSError."""
        with _named(self.path / name):
            self._rename(name, to, name)

    def rename(self, name: str, to: str) -> None:
        """Give what has this name another one.  Raises OSError."""
        with _named(self.path / name):
            self._rename(name, self, to)

    def remove(self, name: str) -> None:
        """Remove an empty folder within this one.  Raises OSError."""
        with _named(self.path / name):
            os.rmdir(name, dir_fd=self._descriptor)

    def _rename(self, name: str, folder: "Folder", to: str) -> None:
        os.replace(name, to, src_dir_fd=self._descriptor, dst_dir_fd=folder._descriptor)

    def _open(self, name: str, look: Callable[[os.stat_result, Path], None]) -> int:
        """A descriptor of a file, to be read; ``look`` is called with each link and folder on the way, and with it."""
        at, where, rest, links = os.dup(self._descriptor), self.path, [name], 0
        try:
            while True:
                part = rest.pop(0)
                path = where / part
                found = os.open(part, os.O_PATH | os.O_NOFOLLOW, dir_fd=at)
                try:
                    status = os.fstat(found)
                    if rest or stat.S_ISLNK(status.st_mode):
                        look(status, path)
                    if stat.S_ISLNK(status.st_mode):
                        if (links := links + 1) > MAX_LINKS:
                            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                        target = PurePath(os.readlink("", dir_fd=found))
                        rest = [*target.parts, *rest]
                    elif rest:
                        at, found, where = found, at, path
                    else:
                        # Nothing may keep the reader waiting, as a pipe would.
                        opened = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
                        try:
                            look(os.fstat(opened), path)
                        except BaseException:
                            os.close(opened)
                            raise
                        return opened
                finally:
                    os.close(found)
        finally:
            os.close(at)


def signature(path: Path, names: Iterable[str]) -> Signature:
    """Changes with each of the files and links, and with mode and owner of each folder on the way to them."""
    found: list[tuple[int, ...]] = []

    def see(status: os.stat_result, _: Path) -> None:
        if stat.S_ISDIR(status.st_mode):  # other files come and go there
            found.append((status.st_ino, status.st_mode, status.st_uid))
        else:
            found.append((status.st_ino, status.st_ctime_ns))  # of the content, the mode and the owner

    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            folder = Folder(path, descriptor)
            see(os.fstat(descriptor), path)
            for name in names:
                with contextlib.suppress(OSError):
                    os.close(folder._open(name, see))
                found.append(())
        finally:
            os.close(descriptor)
    return tuple(found)


def _check(status: os.stat_result, path: Path) -> None:
    """Raises ConfigurationError if another user could have the identity trust what that user likes."""
    if status.st_uid not in {0, os.geteuid()}:
        raise ConfigurationError(
            f"{path} is of the user {status.st_uid}, who could so change which keys are trusted, and this program runs "
            f"as {os.geteuid()}: run it as that user if the identity is that user's; otherwise see what was put there, "
            f"and remove it or run: chown -h {os.geteuid()} {path}"
        )
    mode, is_folder = status.st_mode, stat.S_ISDIR(status.st_mode)
    if stat.S_ISLNK(mode) or not mode & _OTHERS_WRITE or (is_folder and mode & stat.S_ISVTX):
        return  # a folder may be sticky, as the volume of a Secret is: others may add to it, but not replace
    raise ConfigurationError(
        f"{path} has mode {stat.S_IMODE(mode):04o}, so that other users can change which keys are trusted: "
        f"chmod go-w {path}"
    )


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


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Has an OSError name the whole path, where a call took a name within a folder."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
