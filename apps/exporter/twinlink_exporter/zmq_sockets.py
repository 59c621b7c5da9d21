"""The dApp's end of the three E3 channels, on ZeroMQ."""

import zmq
from twinlink_e3 import MAX_PDU_OCTETS, Endpoints, connecting
from zmq.utils.monitor import recv_monitor_message

from twinlink.errors import TransportError

from .sockets import FILE_CHECK_NS, LINGER_S, file_identity

# Two seconds of one indication per slot of 0.5 ms; 25 MB at 106 PRBs.  E3 has no sequence numbers: drops here leave no
# trace, so the queue is longer than any tolerable stall.
RECEIVE_QUEUE = 4000
# ZMTP heartbeats: a PING a second; a connection without traffic for two more is dead.
PING_MS, PONG_MS = 1000, 2000
HANDSHAKE_MS = 3000  # of a connection that was accepted by an agent that hangs


class ZmqSockets:
    """REQ to the setup channel, SUB from the RAN, PUB to the RAN; see `E3Sockets`.

    The PUB is an XPUB, identical on the wire, which reports the RAN's subscription: earlier messages are lost.
    ZMQ_CONFLATE is never set: an indication would overwrite the subscriptionResponse.  SUB and XPUB connect when the
    agent has answered a setup: to an agent on POSIX sockets, the greetings of ZeroMQ would be PDUs.
    """

    def __init__(self, endpoints: Endpoints, poller: zmq.Poller | None = None) -> None:
        self.endpoints = self._asked = endpoints
        self.link = endpoints.link
        self._context = zmq.Context()
        self._request: zmq.Socket[bytes] | None = None
        self.poller = poller or zmq.Poller()
        self.from_ran = self._context.socket(zmq.SUB)
        self.from_ran.rcvhwm = RECEIVE_QUEUE
        self.from_ran.linger = 0
        self.from_ran.subscribe(b"")
        self._monitor = self.from_ran.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        self._to_ran = self._context.socket(zmq.XPUB)
        self._to_ran.linger = round(LINGER_S * 1000)
        for lasting in (self.from_ran, self._to_ran):
            lasting.heartbeat_ivl, lasting.heartbeat_timeout = PING_MS, PONG_MS
            lasting.handshake_ivl = HANDSHAKE_MS
            lasting.maxmsgsize = MAX_PDU_OCTETS
        self._agent: Endpoints | None = None  # the addresses that SUB and XPUB are connected to
        self._in_connected = False
        self._out_connected = False
        self._file: tuple[int, int, int] | None = None  # of `to_dapp`, when it was connected
        self._next_check_ns = 0
        for socket in (self.from_ran, self._monitor, self._to_ran):
            self.poller.register(socket, zmq.POLLIN)

    @property
    def connected(self) -> bool:
        """See `E3Sockets`."""
        return self._in_connected and self._out_connected

    @property
    def can_send(self) -> bool:
        """See `E3Sockets`."""
        return self._out_connected

    def send_setup(self, octets: bytes) -> None:
        """See `E3Sockets`; on a new socket, because a REQ without its reply cannot send again."""
        self._drop_request()
        self._request = self._context.socket(zmq.REQ)
        self._request.linger = 0
        self._request.maxmsgsize = MAX_PDU_OCTETS
        self.poller.register(self._request, zmq.POLLIN)
        self._asked = connecting(self.endpoints)
        try:
            _connect(self._request, self._asked.setup)
        except TransportError:
            self._drop_request()
            raise
        self._request.send(octets)

    def withdraw_setup(self) -> bool:
        """See `E3Sockets`; ZeroMQ does not tell what it has sent."""
        return False

    def receive_setup(self) -> bytes | None:
        """See `E3Sockets`."""
        if self._request is None:
            return None
        try:
            octets = self._request.recv(zmq.DONTWAIT)
        except zmq.Again:
            return None
        self._drop_request()
        if self._agent != self._asked:
            self._connect_channels(self._asked)
        return octets

    def send(self, octets: bytes) -> None:
        """See `E3Sockets`."""
        self._to_ran.send(octets)

    def receive(self) -> bytes | None:
        """See `E3Sockets`."""
        try:
            return self.from_ran.recv(zmq.DONTWAIT)
        except zmq.Again:
            return None

    @property
    def has_more(self) -> bool:
        """See `E3Sockets`."""
        return False

    def tick(self, now_ns: int) -> bool:
        """See `E3Sockets`."""
        lost = False
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)["event"]
            self._in_connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            lost = lost or event == zmq.EVENT_DISCONNECTED
            if self._in_connected:
                self._file = file_identity(self.endpoints.to_dapp)
        try:
            while notice := self._to_ran.recv(zmq.DONTWAIT):
                self._out_connected = notice[0] == 1
        except zmq.Again:
            pass
        if now_ns >= self._next_check_ns:
            self._next_check_ns = now_ns + FILE_CHECK_NS
            lost = self._leave_old_file() or lost
        return lost

    def next_tick_ns(self, now_ns: int) -> int:
        """See `E3Sockets`."""
        return self._next_check_ns

    def close(self) -> None:
        """See `E3Sockets`."""
        self._drop_request()
        for socket in (self.from_ran, self._monitor, self._to_ran):
            self.poller.unregister(socket)
        self.from_ran.disable_monitor()
        self._context.destroy()

    def _leave_old_file(self) -> bool:
        """Connect anew if another agent has bound the same path while the old one, perhaps hanging, keeps its end."""
        file = file_identity(self.endpoints.to_dapp)
        if not self._in_connected or file is None or file == self._file:
            return False
        self._file = file
        self._connect_channels(self._asked)
        return True

    def _connect_channels(self, agent: Endpoints) -> None:
        """Connect to the agent at these addresses, and no longer to those before."""
        if self._agent is not None:
            self.from_ran.disconnect(self._agent.to_dapp)
            self._to_ran.disconnect(self._agent.from_dapp)
        self._agent = agent
        _connect(self.from_ran, agent.to_dapp)
        _connect(self._to_ran, agent.from_dapp)

    def _drop_request(self) -> None:
        if self._request is not None:
            self.poller.unregister(self._request)
            self._request.close()
            self._request = None


def _connect(socket: "zmq.Socket[bytes]", endpoint: str) -> None:
    """Connect in the background.  Raises TransportError."""
    try:
        socket.setsockopt(zmq.IPV6, int("[" in endpoint))
        socket.connect(endpoint)
    except zmq.ZMQError as error:
        raise TransportError(
            f"the E3 endpoint {endpoint} cannot be used: {error}; an endpoint reads ipc:///path or tcp://address:port"
        ) from error
