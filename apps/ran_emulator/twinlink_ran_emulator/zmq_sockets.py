"""The RAN side of the three E3 channels on ZeroMQ."""

from pathlib import Path

import zmq
from twinlink_e3 import MAX_PDU_OCTETS, Endpoints, listening

from .sockets import LINGER_MS, QUEUE, cannot_be_bound, free_path


class ZmqSockets:
    """REP, PUB and SUB; see `bind_sockets` and `Sockets`."""

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
        """See `Sockets`."""
        self._inward.poll(timeout_ms)

    def watch(self, descriptor: int) -> None:
        """See `Sockets`."""
        self._inward.register(descriptor, zmq.POLLIN)

    def wait_to_send(self, timeout_ms: int) -> None:
        """See `Sockets`."""
        self._outward.poll(timeout_ms)

    def setup_request(self) -> bytes | None:
        """See `Sockets`; never another while one is unanswered."""
        try:
            return _take(self._setup)
        except zmq.ZMQError as error:
            if error.errno == zmq.EFSM:
                return None
            raise

    def answer_setup(self, octets: bytes) -> None:
        """See `Sockets`."""
        self._setup.send(octets)

    def from_dapp(self) -> bytes | None:
        """See `Sockets`."""
        return _take(self._from_dapp)

    def send(self, octets: bytes) -> bool:
        """See `Sockets`."""
        try:
            self._to_dapp.send(octets, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def close(self) -> None:
        """See `Sockets`."""
        for file in self._files:  # ZeroMQ leaves them; now, as another process may own them later
            file.unlink(missing_ok=True)
        self._context.destroy(linger=LINGER_MS)

    def _bind(self, kind: int, endpoint: str, *, lossless: bool = False) -> zmq.Socket[bytes]:
        file = free_path(endpoint)
        bound = self._context.socket(kind)
        bound.set_hwm(QUEUE)
        bound.maxmsgsize = MAX_PDU_OCTETS  # of any program that reaches the endpoint
        if lossless:
            bound.setsockopt(zmq.XPUB_NODROP, 1)
        if kind == zmq.SUB:
            bound.setsockopt(zmq.SUBSCRIBE, b"")
        try:
            for one in listening(endpoint):
                bound.setsockopt(zmq.IPV6, int("[" in one))
                bound.bind(one)
        except zmq.ZMQError as error:
            raise cannot_be_bound(endpoint, error.errno or 0, zmq.strerror(error.errno or 0)) from error
        except OSError as error:  # of the resolver
            raise cannot_be_bound(endpoint, error.errno or 0, error.strerror or str(error)) from error
        if file:
            self._files.append(file)
        return bound


def _take(receiver: zmq.Socket[bytes]) -> bytes | None:
    try:
        parts = receiver.recv_multipart(zmq.NOBLOCK)
    except zmq.Again:
        return None
    # E3 messages have one part; several parts, joined, do not decode.
    return parts[0] if len(parts) == 1 else b""
