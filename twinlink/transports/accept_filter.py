"""A filter of a listening socket: a connection is accepted when its first octets come, or its end, and not before.

The kernel keeps what has sent nothing as a half-open connection, which costs it 300 octets for a minute and this
process nothing.  It sends octets later as any other does, and is accepted then.  TCP_DEFER_ACCEPT would accept it when
its time is over, and when the queue of half-open connections is full.

An accepted socket inherits the filter (socket(7), SO_ATTACH_FILTER).  Until `detach`, it gets acknowledgements with
data only.  The end of a connection passes: else the peer could not close its socket.
"""

import contextlib
import ctypes
import socket
import struct
from collections.abc import Collection

from ..process.ip_address import bracketed, with_zone_index
from .tcp_connection import Borrowed, descriptors

SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27  # asm-generic/socket.h
INSTRUCTION = struct.Struct("=HBBI")  # struct sock_filter: code, jump if true, jump if false, k
FIN_SYN_RST = 0x07  # of the flags, octet 13 of the TCP header (RFC 9293 section 3.1); its length is in octet 12
PROGRAM = b"".join(
    INSTRUCTION.pack(*one)
    for one in (
        (0x30, 0, 0, 13),  # A = flags
        (0x45, 6, 0, FIN_SYN_RST),  # a connection begins or ends: pass
        (0x30, 0, 0, 12),  # A = data offset in words, in the upper four bits
        (0x74, 0, 0, 2),  # A >>= 2
        (0x54, 0, 0, 0x3C),  # A &= 0x3c: octets of the header
        (0x07, 0, 0, 0),  # X = A
        (0x80, 0, 0, 0),  # A = octets of the segment
        (0x1D, 1, 0, 0),  # no data: drop
        (0x06, 0, 0, 0xFFFFFFFF),  # pass
        (0x06, 0, 0, 0),  # drop
    )
)


def attach(places: Collection[str]) -> None:
    """Give the filter to this process's sockets that listen at these places, written ``tcp/host:port``."""
    program = ctypes.create_string_buffer(PROGRAM, len(PROGRAM))
    length = len(PROGRAM) // INSTRUCTION.size
    option = struct.pack("@HP", length, ctypes.addressof(program))
    for fd in descriptors():
        with contextlib.suppress(OSError), Borrowed(fd) as one:  # not a socket, closed by now, or no Linux
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and _place(one) in places:
                one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, option)


def detach(fd: int) -> None:
    """Take the filter from an accepted socket."""
    with contextlib.suppress(OSError), Borrowed(fd) as one:  # it has none, or is closed by now
        one.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)


def _place(one: socket.socket) -> str:
    if one.family not in {socket.AF_INET, socket.AF_INET6}:
        return ""
    host, port = one.getsockname()[:2]
    return f"tcp/{bracketed(with_zone_index(host))}:{port}"
