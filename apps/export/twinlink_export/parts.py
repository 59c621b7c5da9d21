"""Files that are there when they are whole: written under another name beside it, which no reader takes for them."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Gives the path under which to write; at the end it gets its name, after an error it is removed."""
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
