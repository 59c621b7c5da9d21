"""OPC UA (OPC 10000-4 and -6): asyncua's server and client, frames in two variables of type ByteString.

The client writes ``ns=1;s=Written``.  ``ns=1;s=Read`` has frames of the server: with a subscription its newest frame,
otherwise the one that waits longest, behind the eight octets of a mailbox (`mailbox.HEAD`); each read takes one.
"""

import asyncio
import logging
import socket
from typing import Any

from asyncua import ua
from asyncua.client.client import Client
from asyncua.common.callback import CallbackType
from asyncua.common.node import Node
from asyncua.server.server import Server
from asyncua.ua.attribute_ids import AttributeIds
from asyncua.ua.uaerrors import UaError

from twinlink.transports import Endpoint

from .base import TRAFFIC, PeerLost
from .loop import LoopThread
from .mailbox import HEAD, MOST_SEQUENCE
from .polled import ANSWER_S, PolledChannel

WRITTEN, READ = map(ua.NodeId.from_string, ("ns=1;s=Written", "ns=1;s=Read"))
START_S = 25.0  # `Server.init` takes two seconds of processor time
SESSION_MS = 600_000  # what asyncua's server grants
QUIET_S = 3600  # between reads of the server's state, by which the client's watchdog would disturb
QUEUE = 10_000  # notifications of the monitored item, as many as asyncua's server keeps


class OpcuaChannel(PolledChannel):
    """The client writes one variable and polls the other.

    Options: ``no_delay`` (TCP_NODELAY); those of `PolledChannel`.
    """

    written, read = WRITTEN, READ
    _server: Server | None = None
    _client: Client | None = None

    def __init__(self, endpoint: Endpoint, listening: bool, node: str, options: dict[str, Any]) -> None:
        super().__init__(endpoint, listening, node, options)
        self._shown = b""  # the value of the variable for reading
        self._sequence = 0  # of the value

    def open(self) -> None:
        """Listen, or connect.  Raises OSError."""
        logging.getLogger("asyncua").setLevel(logging.ERROR)  # it warns of values that the server revised
        self._loop = LoopThread()
        try:
            self._loop.run(self._listen() if self.listening else self._connect(), START_S)
        except (UaError, TimeoutError) as error:
            raise OSError(f"OPC UA at {self.endpoint}: {error!r}") from error

    @property
    def _url(self) -> str:
        return f"opc.tcp://{self.endpoint.host}:{self.endpoint.port}/"

    # The server

    async def _listen(self) -> None:
        self._server = server = Server()
        await server.init()
        server.set_endpoint(self._url)
        server.set_security_policy([ua.SecurityPolicyType.NoSecurity])
        for node_id in dict.fromkeys((self.written, self.read)):
            name = str(node_id.Identifier)
            node = await server.nodes.objects.add_variable(node_id, name, b"", ua.VariantType.ByteString)
            if node_id == self.written:
                await node.set_writable()
        self._offer(server)
        server.subscribe_server_callback(CallbackType.PreRead, self._turn)
        server.subscribe_server_callback(CallbackType.PreWrite, self._turn)
        await server.start()

    def _offer(self, server: Server) -> None:
        """Take what clients write, and let them read the frames that wait."""
        server.set_attribute_value_setter(WRITTEN, self._on_write)
        server.set_attribute_value_callback(READ, self._on_read)

    def _on_write(self, _node: Any, _attribute: AttributeIds, value: ua.DataValue) -> None:
        if value.Value is not None and isinstance(value.Value.Value, bytes):
            self.arrived(value.Value.Value)

    def _on_read(self, _node: ua.NodeId, _attribute: AttributeIds) -> ua.DataValue:
        if self.outgoing:
            frame = self.outgoing.popleft()
            self._sequence = self._sequence % MOST_SEQUENCE + 1
            self._shown = HEAD.pack(self._sequence, min(len(self.outgoing), 0xFFFF), len(frame)) + frame
        return _value(self._shown)

    async def _turn(self, _event: Any, _dispatcher: Any) -> None:
        """What precedes the handling of a request: socket option, end of the sweep."""
        if not self.options["no_delay"] and self._server is not None and self._server.bserver is not None:
            for each in self._server.bserver.clients:
                _allow_nagle(each.transport)
        if left_s := self.sweep_left_s():
            await asyncio.sleep(left_s)

    # The client

    async def _connect(self) -> None:
        self._client = client = Client(self._url, timeout=ANSWER_S, watchdog_intervall=QUIET_S)
        client.session_timeout = SESSION_MS
        await client.connect()
        if not self.options["no_delay"] and client.uaclient.protocol is not None:
            _allow_nagle(client.uaclient.protocol.transport)
        self._to_write, self._to_read = client.get_node(self.written), client.get_node(self.read)

    def write(self, topic: bytes, frame: bytes | bytearray) -> None:
        """Write the variable.  Without a timestamp, which asyncua would add: open62541's server refuses one."""
        self._run(self._to_write.write_value(_value(bytes(frame))))

    def poll(self) -> bytes | None:
        """Read the variable."""
        octets: bytes = self._run(self._to_read.read_value())
        sequence, behind, _ = HEAD.unpack_from(octets.ljust(HEAD.size, b"\0"))
        if sequence == self._sequence:
            self.behind = 0
            return None
        self._sequence, self.behind = sequence, behind
        return octets[HEAD.size :]

    def _run(self, request: Any) -> Any:
        try:
            return self._loop.run(request, ANSWER_S + 1)
        except (UaError, OSError, TimeoutError) as error:
            raise PeerLost(f"an OPC UA request to {self.endpoint} failed: {error!r}") from error

    def close(self) -> None:
        """Close the session, and end the server."""
        try:
            if self._client is not None:
                self._loop.run(self._client.disconnect())
            if self._server is not None:
                self._loop.run(self._server.stop())
        except (UaError, OSError, TimeoutError):
            pass  # the peer is gone
        self._loop.close()


class OpcuaSubscriptionChannel(OpcuaChannel):
    """The client writes one variable and subscribes to the other.

    Options: ``publishing_ms``, interval of the subscription, and ``sampling_ms``, of its monitored item, both as
    requested (asyncua's server takes 0 as "at once" and has no sampling); ``no_delay``; ``sweep_ms``.
    """

    interval = "publishing_ms"

    def _offer(self, server: Server) -> None:
        """Take what clients write; frames are written to the other variable."""
        server.set_attribute_value_setter(WRITTEN, self._on_write)

    def put(self, topic: bytes, frame: bytes | bytearray) -> None:
        """Write the variable, at the server by itself; a message waits until that is done."""
        if self._server is None:
            self.write(topic, frame)
            return
        written = self._loop.start(self._server.write_attribute_value(READ, _value(bytes(frame))))
        if topic == TRAFFIC:
            written.result(ANSWER_S)

    def get(self, wait: bool = True) -> bytes | None:
        """The next frame that was written, or that a notification brought."""
        return self.from_inbox(wait)

    async def _connect(self) -> None:
        await super()._connect()
        assert self._client is not None
        subscription = await self._client.create_subscription(self.options["publishing_ms"], self)
        # asyncua takes a subscription with an interval of 0 as stale after a second without notifications, makes it
        # anew, and so delivers the last value again.
        subscription.is_stale = lambda margin: False  # type: ignore[method-assign]
        await subscription.subscribe_data_change(
            self._to_read, queuesize=QUEUE, sampling_interval=self.options["sampling_ms"]
        )

    def datachange_notification(self, _node: Node, value: Any, _data: Any) -> None:
        """A notification; asyncua calls this on its loop."""
        if value:
            self.inbox.put(value)


def _value(octets: bytes) -> ua.DataValue:
    return ua.DataValue(ua.Variant(octets, ua.VariantType.ByteString))


def _allow_nagle(transport: Any) -> None:
    """Take back TCP_NODELAY, which asyncio sets."""
    if transport is not None and (opened := transport.get_extra_info("socket")) is not None:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
