"""Starts gnuradio-companion with the blocks of this package."""

import errno
import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

from twinlink.errors import TwinlinkError

from . import grc


def start(graph: str) -> NoReturn:
    """Replace this process by gnuradio-companion with our blocks, in this Python: it must import this package.

    Args:
        graph: path of a flowgraph, or the name of one in `grc.PATH`; empty for none.

    Raises:
        TwinlinkError: gnuradio-companion or what it needs is missing; the message says what to install.
        FileNotFoundError: there is no such flowgraph.
    """
    command = shutil.which("gnuradio-companion")
    if command is None:
        raise TwinlinkError("gnuradio-companion was not found: apt install gnuradio")
    path = grc.PATH / graph if graph and not Path(graph).exists() else Path(graph)
    if not path.exists():  # gnuradio-companion itself would open an empty window without a message
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), graph)
    _check_gtk()
    paths = [os.environ.get("GRC_BLOCKS_PATH", ""), str(grc.PATH)]
    os.environ["GRC_BLOCKS_PATH"] = os.pathsep.join(filter(None, paths))
    os.execv(sys.executable, [sys.executable, command, *([str(path)] if graph else [])])


def _check_gtk() -> None:
    try:
        import gi

        gi.require_version("Gtk", "3.0")
        from gi.repository import Gtk
    except (ImportError, ValueError) as error:
        raise TwinlinkError(
            f"gnuradio-companion needs GTK 3 for Python ({error}): apt install python3-gi gir1.2-gtk-3.0"
        ) from error
    if not Gtk.init_check()[0]:
        raise TwinlinkError(
            "gnuradio-companion needs a display, and none can be opened: run it on a desktop (over ssh with -X), or "
            "without one use twinlink-replay itself"
        )
