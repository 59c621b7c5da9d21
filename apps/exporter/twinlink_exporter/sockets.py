"""The dApp's end of the three E3 channels, on ZeroMQ."""

import os
from pathlib import Path

import zmq
from twinlink_e3 import Endpoints
from zmq.utils.monitor import recv_monitor_message

from twinlink.errors import TransportError

# Two seconds of one indication per slot of 0.5 ms; 25 MB at 106 PRBs.  E3 has no sequence numbers: drops here leave no
# trace, so the queue is longer than any tolerable stall.
RECEIVE_QUEUE = 4000
LINGER_MS = 500  # for the releaseMessage at the end


def is_closed_to_us(endpoint: str) -> bool:
    """Whether this user lacks permission for the file of an ``ipc://`` socket, so that no answer can come."""
    path = Path(endpoint.removeprefix("ipc://"))
    try:
        return endpoint.startswith("ipc://") and path.exists() and not os.access(path, os.W_OK, effective_ids=True)
    except PermissionError:  # no permission for its folder
        return True


class E3Sockets:
    """REQ to the setup channel, SUB from the RAN, PUB to the RAN.

    The PUB is an XPUB, identical on the wire, which reports the RAN's subscription: earlier messages are lost.
    ZMQ_CONFLATE is never set: an indication would overwrite the subscriptionResponse.
    """

    def __init__(self, endpoints: Endpoints) -> None:
        self.endpoints = endpoints
        self._context = zmq.Context()
        self._request: zmq.Socket[bytes] | None = None
        self.poller = zmq.Poller()
        self.from_ran = self._context.socket(zmq.SUB)
        self.from_ran.rcvhwm = RECEIVE_QUEUE
        self.from_ran.linger = 0
        self.from_ran.subscribe(b"")
        self._monitor = self.from_ran.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        self._to_ran = self._context.socket(zmq.XPUB)
        self._to_ran.linger = LINGER_MS
        self._in_connected = False
        self._out_connected = False
        for socket in (self.from_ran, self._monitor, self._to_ran):
            self.poller.register(socket, zmq.POLLIN)
        try:
            self.from_ran.connect(endpoints.to_dapp)
            self._to_ran.connect(endpoints.from_dapp)
            with self._context.socket(zmq.REQ) as probe:  # reports a bad endpoint now, not at the first request
                probe.connect(endpoints.setup)
        except zmq.ZMQError as error:
            self.close()
            raise TransportError(
                f"the E3 endpoints {endpoints.setup}, {endpoints.to_dapp}, {endpoints.from_dapp} cannot be used: "
                f"{error}; an endpoint reads ipc:///path or tcp://address:port"
            ) from error

    @property
    def connected(self) -> bool:
        """Whether the RAN is connected both ways."""
        return self._in_connected and self._out_connected

    def send_setup(self, octets: bytes) -> None:
        """Send a setup request on a new socket, because a REQ without its reply cannot send again."""
        self._drop_request()
        self._request = self._context.socket(zmq.REQ)
        self._request.linger = 0
        self._request.connect(self.endpoints.setup)
        self._request.send(octets)
        self.poller.register(self._request, zmq.POLLIN)

    def receive_setup(self) -> bytes | None:
        """The reply to the setup request, or None."""
        if self._request is None:
            return None
        try:
            octets = self._request.recv(zmq.DONTWAIT)
        except zmq.Again:
            return None
        self._drop_request()
        return octets

    def send(self, octets: bytes) -> None:
        """Send to the RAN; lost if it has not subscribed yet."""
        self._to_ran.send(octets)

    def watch(self) -> bool:
        """Update the connection states; returns whether the connection from the RAN was lost."""
        lost = False
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)["event"]
            self._in_connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            lost = lost or event == zmq.EVENT_DISCONNECTED
        try:
            while notice := self._to_ran.recv(zmq.DONTWAIT):
                self._out_connected = notice[0] == 1
        except zmq.Again:
            pass
        return lost

    def close(self) -> None:
        """Send queued messages, for `LINGER_MS` at most, and close."""
        self._drop_request()
        self.from_ran.disable_monitor()
        self._context.destroy()

    def _drop_request(self) -> None:
        if self._request is not None:
            self.poller.unregister(self._request)
            self._request.close()
            self._request = None
