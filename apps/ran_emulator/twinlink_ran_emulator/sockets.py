"""The RAN side of the three E3 sockets (`twinlink_e3.Endpoints`)."""

import errno
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

import zmq
from twinlink_e3 import Endpoints

from twinlink.errors import TransportError

LINGER_MS = 500  # to send queued PDUs before the process ends
QUEUE = 2000  # PDUs queued for a dApp that does not read: 20 s at a gNB's pace; then they are dropped, as by a gNB
_ADVICE = {
    errno.EADDRINUSE: "is another gNB or emulator running?",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "run as a user with that permission"),
}
_USUAL_ADVICE = "an endpoint reads ipc:///path or tcp://address:port, and the address is one of this host"


class Sockets:
    """Bound sockets.  Raises TransportError if an endpoint is taken or cannot be bound.

    Args:
        endpoints: where to bind.
        lossless: a slow dApp stops the sender (`send` returns False) instead of losing PDUs.
    """

    def __init__(self, endpoints: Endpoints, *, lossless: bool = False) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._files: list[Path] = []
        try:
            self._setup = self._bind(zmq.REP, endpoints.setup)
            self._to_dapp = self._bind(zmq.PUB, endpoints.to_dapp, lossless=lossless)
            self._from_dapp = self._bind(zmq.SUB, endpoints.from_dapp)
        except BaseException:
            self.close()
            raise
        self._inward = zmq.Poller()
        self._inward.register(self._setup, zmq.POLLIN)
        self._inward.register(self._from_dapp, zmq.POLLIN)
        self._outward = zmq.Poller()
        self._outward.register(self._to_dapp, zmq.POLLOUT)

    def wait(self, timeout_ms: int) -> None:
        """Wait for incoming messages, at most that long."""
        self._inward.poll(timeout_ms)

    def wait_to_send(self, timeout_ms: int) -> None:
        """Wait until `send` may succeed, at most that long."""
        self._outward.poll(timeout_ms)

    def setup_request(self) -> bytes | None:
        """The next setup request, or None; answer it with `answer_setup` first."""
        return _take(self._setup)

    def answer_setup(self, octets: bytes) -> None:
        """Answer the last setup request."""
        self._setup.send(octets)

    def from_dapp(self) -> bytes | None:
        """The next PDU of a dApp, or None."""
        return _take(self._from_dapp)

    def send(self, octets: bytes) -> bool:
        """Send a PDU to all dApps; False if one of them must read first (`lossless` only)."""
        try:
            self._to_dapp.send(octets, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def close(self) -> None:
        """Close all sockets, when queued PDUs were sent or `LINGER_MS` passed."""
        for file in self._files:  # ZeroMQ leaves them; now, as another process may own them later
            file.unlink(missing_ok=True)
        self._context.destroy(linger=LINGER_MS)

    def _bind(self, kind: int, endpoint: str, *, lossless: bool = False) -> zmq.Socket[bytes]:
        file = _free_ipc(endpoint)
        bound = self._context.socket(kind)
        bound.set_hwm(QUEUE)
        if lossless:
            bound.setsockopt(zmq.XPUB_NODROP, 1)
        if kind == zmq.SUB:
            bound.setsockopt(zmq.SUBSCRIBE, b"")
        try:
            bound.bind(endpoint)
        except zmq.ZMQError as error:
            what_to_do = _ADVICE.get(error.errno or 0, _USUAL_ADVICE)
            reason = zmq.strerror(error.errno or 0)
            raise TransportError(f"the E3 endpoint {endpoint} cannot be bound: {reason}; {what_to_do}") from error
        if file:
            self._files.append(file)
        return bound

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _take(receiver: zmq.Socket[bytes]) -> bytes | None:
    try:
        parts = receiver.recv_multipart(zmq.NOBLOCK)
    except zmq.Again:
        return None
    # E3 messages have one part; several parts, joined, do not decode.
    return parts[0] if len(parts) == 1 else b""


def _free_ipc(endpoint: str) -> Path | None:
    """The file of an ipc endpoint, with its directory created; None for another kind.

    Refuses one with a listener: ZeroMQ would take it over.
    """
    if not endpoint.startswith("ipc://") or endpoint[6:7] in ("@", "*"):
        return None
    path = Path(endpoint.removeprefix("ipc://"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.connect(str(path))
    except (FileNotFoundError, ConnectionRefusedError):
        return path
    except OSError as error:
        raise TransportError(f"the E3 endpoint {endpoint} cannot be used: {error}") from error
    raise TransportError(f"the E3 endpoint {endpoint} is in use: another gNB or emulator is running")
