"""The dApp's end of the three E3 channels over the link that the agent has, which each setup request finds anew.

A ZeroMQ agent greets as soon as its setup channel is connected.  One on POSIX sockets waits for the request, which it
then gets over the same connection.  Nothing is sent before the link is known, so no agent gets octets of the other one.
"""

import time
from dataclasses import replace

import zmq
from twinlink_e3 import ANY_LINK, Endpoints, connecting

from .posix_sockets import RECONNECT_NS, Connection, PosixSockets, check_connectable
from .sockets import FILE_CHECK_NS, GREETING_S, ZMTP_SIGNATURE, S
from .zmq_sockets import ZmqSockets

GREETING_NS = int(GREETING_S * S)


class FoundSockets:
    """`ZmqSockets` or `PosixSockets`, when it is known which; see `E3Sockets`."""

    def __init__(self, endpoints: Endpoints) -> None:
        check_connectable(endpoints)
        self.endpoints = self._agent = endpoints
        self.poller = zmq.Poller()
        self._found: ZmqSockets | PosixSockets | None = None
        self._is_gone = False  # the agent to which they were connected
        self._request: bytes | None = None  # until the link is found
        self._probe: Connection | None = None  # to the setup channel
        self._next_probe_ns = 0
        self._silent_ns: int | None = None  # when a ZeroMQ agent must have greeted; None until connected

    @property
    def link(self) -> str:
        """See `E3Sockets`."""
        return self._found.link if self._found else ANY_LINK

    @property
    def from_ran(self) -> object:
        """See `E3Sockets`."""
        return self._found.from_ran if self._found else None

    @property
    def connected(self) -> bool:
        """See `E3Sockets`."""
        return bool(self._found and self._found.connected)

    @property
    def can_send(self) -> bool:
        """See `E3Sockets`."""
        return bool(self._found and self._found.can_send)

    def send_setup(self, octets: bytes) -> None:
        """See `E3Sockets`."""
        if self._is_gone:  # another agent may have the other link
            self._leave()
        self._drop_probe()
        self._request, self._next_probe_ns = octets, 0
        self._advance(time.monotonic_ns())

    def withdraw_setup(self) -> bool:
        """See `E3Sockets`."""
        if self._request is None:
            return bool(self._found and self._found.withdraw_setup())
        self._drop_probe()
        self._request = None
        return True

    def receive_setup(self) -> bytes | None:
        """See `E3Sockets`.  Raises MalformedPdu."""
        return self._found.receive_setup() if self._found and self._request is None else None

    def send(self, octets: bytes) -> None:
        """See `E3Sockets`."""
        if self._found:
            self._found.send(octets)

    def receive(self) -> bytes | None:
        """See `E3Sockets`.  Raises MalformedPdu."""
        return self._found.receive() if self._found else None

    @property
    def has_more(self) -> bool:
        """See `E3Sockets`."""
        return bool(self._found and self._found.has_more)

    def tick(self, now_ns: int) -> bool:
        """See `E3Sockets`."""
        self._advance(now_ns)
        lost = bool(self._found and self._found.tick(now_ns))
        self._is_gone = self._is_gone or lost
        return lost

    def next_tick_ns(self, now_ns: int) -> int:
        """See `E3Sockets`."""
        times = [self._found.next_tick_ns(now_ns) if self._found else now_ns + FILE_CHECK_NS]
        if self._request is not None:
            times.append(self._silent_ns or self._next_probe_ns)
        return min(times)

    def close(self) -> None:
        """See `E3Sockets`."""
        self._drop_probe()
        self._leave()

    def _advance(self, now_ns: int) -> None:
        """Find the link over which the request is to be sent, and send it."""
        if self._request is None or (self._probe is None and now_ns < self._next_probe_ns):
            return
        try:
            if self._probe is None:
                self._agent = connecting(self.endpoints)
                self._probe = Connection(self._agent.setup, self.poller)
                self._next_probe_ns = now_ns + RECONNECT_NS
            if not self._probe.advance():
                return
            self._silent_ns = self._silent_ns or time.monotonic_ns() + GREETING_NS
            octets = self._probe.receive()
        except OSError:
            self._drop_probe()
            self._next_probe_ns = now_ns + RECONNECT_NS
            return
        if octets is not None:
            self._use("zmq" if octets.startswith(ZMTP_SIGNATURE) else "posix")
        elif now_ns >= self._silent_ns:
            self._use("posix")

    def _use(self, link: str) -> None:
        """Send the request over this link."""
        assert self._request is not None
        assert self._probe
        if link != self.link:
            self._leave()
        request, self._request = self._request, None
        probe, self._probe, self._silent_ns = self._probe, None, None
        endpoints = replace(self.endpoints, link=link)
        if link == "zmq":
            probe.close()
            found = self._found if isinstance(self._found, ZmqSockets) else ZmqSockets(endpoints, self.poller)
            self._found = found
            found.send_setup(request)
        else:
            sockets = self._found if isinstance(self._found, PosixSockets) else PosixSockets(endpoints, self.poller)
            self._found = sockets
            sockets.send_setup_over(probe, self._agent, request)

    def _leave(self) -> None:
        """Close the sockets of the link that was found."""
        if self._found:
            self._found.close()
        self._found, self._is_gone = None, False

    def _drop_probe(self) -> None:
        if self._probe:
            self._probe.close()
        self._probe, self._silent_ns = None, None
