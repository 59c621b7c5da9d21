"""The dApp's end of the three E3 channels, over ZeroMQ or POSIX sockets, or over those that the agent has."""

import os
import socket
from typing import Protocol

import zmq
from twinlink_e3 import Endpoints, connecting, path_of, posix_address

S = 1_000_000_000
LINGER_S = 0.5  # for the releaseMessage at the end
GREETING_S = 0.2  # a ZeroMQ agent greets within a millisecond
ZMTP_SIGNATURE = b"\xff"  # its first octet
FILE_CHECK_NS = S  # between two looks at the file of an ipc socket


class E3Sockets(Protocol):
    """Used by one thread.

    Attributes:
        endpoints: of the E3 agent.
        link: in use: one of `twinlink_e3.LINKS`, or `twinlink_e3.ANY_LINK` as long as none is found.
        poller: what to wait for, in `twinlink_exporter.exporter`.
        from_ran: what of it has PDUs of the RAN: a socket or a file descriptor.
    """

    endpoints: Endpoints
    poller: zmq.Poller

    @property
    def link(self) -> str:
        """As above."""
        ...

    @property
    def from_ran(self) -> object:
        """As above."""
        ...

    @property
    def connected(self) -> bool:
        """Whether the RAN is connected both ways."""
        ...

    @property
    def can_send(self) -> bool:
        """Whether the RAN is connected for `send`."""
        ...

    def send_setup(self, octets: bytes) -> None:
        """Send a setup request, as soon as the agent can be reached; the request before, if unanswered, is dropped."""
        ...

    def withdraw_setup(self) -> bool:
        """Drop a setup request that is surely not sent yet; returns whether there was one."""
        ...

    def receive_setup(self) -> bytes | None:
        """The reply to the setup request, or None."""
        ...

    def send(self, octets: bytes) -> None:
        """Send to the RAN; lost without `can_send`."""
        ...

    def receive(self) -> bytes | None:
        """The next PDU of the RAN, or None."""
        ...

    @property
    def has_more(self) -> bool:
        """Whether `receive` has PDUs of which `poller` does not know."""
        ...

    def tick(self, now_ns: int) -> bool:
        """Update the connections; returns whether one was lost since the last call."""
        ...

    def next_tick_ns(self, now_ns: int) -> int:
        """Monotonic time at which to call `tick`, if nothing of `poller` is ready before."""
        ...

    def close(self) -> None:
        """Send queued messages, for `LINGER_S` at most, and close."""
        ...


def open_sockets(endpoints: Endpoints) -> E3Sockets:
    """Sockets of the endpoints' link, which connect as soon as the agent is there.  Raises TransportError."""
    if endpoints.link == "posix":
        from .posix_sockets import PosixSockets

        return PosixSockets(endpoints)
    if endpoints.link == "zmq":
        from .zmq_sockets import ZmqSockets

        return ZmqSockets(endpoints)
    from .found_sockets import FoundSockets

    return FoundSockets(endpoints)


def setup_problem(endpoints: Endpoints) -> str | None:
    """Why no answer to a setup request can come, with advice; None if one can.  May take `GREETING_S`."""
    if is_closed_to_us(endpoints.setup):
        return "this user may not write to it: run as the gNB's user, or have its sockets opened to the group"
    if endpoints.link == "zmq" and _listens_without_greeting(connecting(endpoints).setup):
        return "it does not greet as ZeroMQ does: set --e3-link posix, or look whether the gNB hangs"
    return None


def _listens_without_greeting(endpoint: str) -> bool:
    """Whether connections are accepted, but not with the signature that ZMTP sends at once.

    Nothing is sent, and an agent takes that on its setup channel for a dApp that left again.
    """
    family, address = posix_address(endpoint)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(GREETING_S)
        try:
            probe.connect(address)
        except OSError:
            return False
        try:
            return probe.recv(1) != ZMTP_SIGNATURE
        except TimeoutError:
            return True
        except OSError:
            return False


def listens(endpoint: str) -> bool:
    """Whether connections are accepted there, of which one is made and closed."""
    family, address = posix_address(endpoint)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(GREETING_S)
        return probe.connect_ex(address) == 0


def is_closed_to_us(endpoint: str) -> bool:
    """Whether this user lacks permission for the file of an ``ipc://`` socket, so that no answer can come."""
    path = path_of(endpoint)
    try:
        return path is not None and path.exists() and not os.access(path, os.W_OK, effective_ids=True)
    except PermissionError:  # no permission for its folder
        return True


def file_identity(endpoint: str) -> tuple[int, int, int] | None:
    """Tells one file of an ipc socket from the next at the same path; None without a file."""
    path = path_of(endpoint)
    try:
        status = path.stat() if path else None
    except OSError:
        return None
    # The inode alone may be used again at once; a change of mode leaves the time of modification as it is.
    return (status.st_dev, status.st_ino, status.st_mtime_ns) if status else None
