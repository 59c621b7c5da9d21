"""The RAN side of the three E3 channels, over ZeroMQ or POSIX sockets."""

import errno
import socket
from pathlib import Path
from typing import Protocol

from twinlink_e3 import Endpoints, path_of

from twinlink.errors import TransportError

LINGER_MS = 500  # to send queued PDUs before the process ends
QUEUE = 2000  # PDUs queued for a dApp that does not read: 20 s at a gNB's pace; then they are dropped, as by a gNB
_ADVICE = {
    errno.EADDRINUSE: "is another gNB or emulator running?",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "run as a user with that permission"),
}
_USUAL_ADVICE = "an endpoint reads ipc:///path or tcp://address:port, and the address is one of this host"


class Sockets(Protocol):
    """Bound sockets."""

    def wait(self, timeout_ms: int) -> None:
        """Wait for incoming messages, at most that long."""
        ...

    def watch(self, descriptor: int) -> None:
        """Let `wait` return when this file descriptor is readable, too."""
        ...

    def wait_to_send(self, timeout_ms: int) -> None:
        """Wait until `send` may succeed, at most that long."""
        ...

    def setup_request(self) -> bytes | None:
        """The next setup request, or None; answer it with `answer_setup` first."""
        ...

    def answer_setup(self, octets: bytes) -> None:
        """Answer the setup request that came last."""
        ...

    def from_dapp(self) -> bytes | None:
        """The next PDU of a dApp, or None."""
        ...

    def send(self, octets: bytes) -> bool:
        """Send a PDU to all dApps; False if one of them must read first (`lossless` only)."""
        ...

    def close(self) -> None:
        """Close all sockets, when queued PDUs were sent or `LINGER_MS` passed."""
        ...


def bind_sockets(endpoints: Endpoints, *, lossless: bool = False) -> Sockets:
    """Sockets of the endpoints' link.

    Args:
        endpoints: where to bind.
        lossless: a slow dApp stops the sender (`Sockets.send` returns False) instead of losing PDUs.

    Raises:
        TransportError: an endpoint is taken or cannot be bound.
    """
    if endpoints.link == "posix":
        from .posix_sockets import PosixSockets

        return PosixSockets(endpoints, lossless=lossless)
    from .zmq_sockets import ZmqSockets

    return ZmqSockets(endpoints, lossless=lossless)


def free_path(endpoint: str) -> Path | None:
    """The file of an ipc endpoint, with its directory created; None for another kind.

    Raises:
        TransportError: a process listens there; binding would take the endpoint from it.
    """
    if (path := path_of(endpoint)) is None:
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.connect(str(path))
    except (FileNotFoundError, ConnectionRefusedError):
        return path
    except OSError as error:
        raise TransportError(f"the E3 endpoint {endpoint} cannot be used: {error}") from error
    raise TransportError(f"the E3 endpoint {endpoint} is in use: another gNB or emulator is running")


def cannot_be_bound(endpoint: str, number: int, reason: str) -> TransportError:
    """The error of an endpoint, from the ``errno`` and its text."""
    return TransportError(f"the E3 endpoint {endpoint} cannot be bound: {reason}; {_ADVICE.get(number, _USUAL_ADVICE)}")
