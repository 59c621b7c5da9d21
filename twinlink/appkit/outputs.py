"""Files that a run leaves behind: those of an earlier run are refused, or replaced with ``--overwrite``.

A log is no such file: runs append to it.
"""

from collections.abc import Iterable
from pathlib import Path

from twinlink.errors import ConfigurationError

from .options import Container


def add_option(parser: Container) -> None:
    """Declare ``--overwrite``."""
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the files of an earlier run, which are refused otherwise"
    )


def refuse_existing(option: str, paths: Iterable[Path], overwrite: bool) -> None:
    """Refuse files that hold something; an empty one, as a failed start leaves it, holds nothing to lose.

    Args:
        option: names the place, such as ``--out``.
        paths: what is to be written.
        overwrite: whether ``--overwrite`` was given; then nothing is refused.

    Raises ConfigurationError, which says what to do; OSError.
    """
    for path in () if overwrite else paths:
        if path.is_file() and path.stat().st_size:
            raise ConfigurationError(f"{path} exists: name another {option}, or replace it with --overwrite")


def refuse_inputs(option: str, paths: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Refuse to write what is read, whatever was given.

    Raises ConfigurationError, which says what to do; OSError.
    """
    read = [path for path in inputs if path.exists()]
    for path in paths:
        if path.exists() and any(path.samefile(one) for one in read):
            raise ConfigurationError(f"{path} is what is read: name another {option}")
