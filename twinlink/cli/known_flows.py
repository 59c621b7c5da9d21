"""The names of flows that were seen last, in a file of this user: the shell completes `--flow` with them.

To ask a link at each press of the Tab key would have its programs meet a peer each time.
"""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from ..process import files

MAX_FLOWS = 200
# For bash and zsh: prints the names.
SHELL = 'cat "${XDG_CACHE_HOME:-$HOME/.cache}/twinlink/flows" 2>/dev/null'


def path() -> Path:
    """The file, one name a line, the last seen first."""
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "twinlink" / "flows"


def remember(flows: Iterable[str]) -> None:
    """Put these names first.  Where the file cannot be written, the shell completes nothing."""
    with contextlib.suppress(OSError, RuntimeError, UnicodeDecodeError):  # RuntimeError: there is no home
        file = path()
        before = file.read_text().split() if file.is_file() else []
        names = list(dict.fromkeys((*sorted(flows), *before)))[:MAX_FLOWS]
        if names == before:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        with files.whole(file) as part:
            part.write_text("".join(f"{name}\n" for name in names))
