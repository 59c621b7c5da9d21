"""The name of this host, which may be any octets."""

import socket

from .text import on_one_line

_LONGEST = 200  # characters, escaped; the kernel's has at most 64 octets


def host_name() -> str:
    r"""As people read it: what is no UTF-8, or not printable, is escaped, as in ``m\xfchle``."""
    return on_one_line(socket.gethostname())[:_LONGEST]
