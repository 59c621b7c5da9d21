"""Servers of one Boolean in and one Boolean out, by protocol, packed as the paper packs them.

| protocol | in | out |
|---|---|---|
| `s7` | data block 1, octet 0, bit 0 | data block 2, octet 0, bit 0 |
| `modbus` | register 0, bit 0 (function 6) | register 1, bit 0 (function 3) |
| `opcua` | variable ``ns=1;s=In``, a Boolean | ``ns=1;s=Out`` |
| `websocket` | a JSON object ``{"name": "in", "value": true}`` | ``{"name": "out", "value": true}`` on each change |
| `mqtt` | topic ``in``, one octet, QoS 0 | topic ``out`` on each change |
"""

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

OnInput = Callable[[bool], None]


class BooleanServer(ABC):
    """A server on the running asyncio loop.

    Args:
        host, port: where it listens; with `mqtt`, the broker's.
        on_input: called on the loop when a client has written the Boolean.
    """

    def __init__(self, host: str, port: int, on_input: OnInput) -> None:
        self.host, self.port = host, port
        self.on_input = on_input
        self.output = False

    @abstractmethod
    async def start(self) -> None:
        """Listen.  Raises OSError."""

    async def show(self, value: bool) -> None:
        """Offer a value of the output to the clients."""
        if value != self.output:
            self.output = value
            await self.changed()

    @abstractmethod
    async def changed(self) -> None:
        """Offer a new value of the output."""


class S7Server(BooleanServer):
    """python-snap7's server, on threads of its own."""

    async def start(self) -> None:
        """Listen."""
        from snap7.server import Server
        from snap7.type import SrvArea

        self._in, self._out = bytearray(2), bytearray(2)
        self._server = Server(log=False)
        self._server.register_area(SrvArea.DB, 1, self._in)
        self._server.register_area(SrvArea.DB, 2, self._out)
        loop = asyncio.get_running_loop()
        self._server.set_events_callback(lambda _event: loop.call_soon_threadsafe(self.on_input, bool(self._in[0] & 1)))
        self._server.start_to(self.host, self.port)

    async def changed(self) -> None:
        """Put the output into its data block."""
        self._out[0] = int(self.output)


class ModbusServer(BooleanServer):
    """pymodbus."""

    async def start(self) -> None:
        """Listen."""
        from pymodbus.server import ModbusTcpServer
        from pymodbus.simulator import DataType, SimData, SimDevice

        registers = [SimData(0, count=2, values=0, datatype=DataType.REGISTERS)]
        self._server = ModbusTcpServer([SimDevice(1, registers, action=self._on)], address=(self.host, self.port))
        await self._server.serve_forever(background=True)

    async def _on(
        self, _function: int, _start: int, address: int, _count: int, registers: list[int], values: Any
    ) -> None:
        if values is not None and address == 0:
            self.on_input(bool(int(values[0]) & 1))
        elif values is None:
            registers[1] = int(self.output)

    async def changed(self) -> None:
        """The register has the value when it is read."""


class OpcuaServer(BooleanServer):
    """asyncua."""

    async def start(self) -> None:
        """Listen."""
        from asyncua import ua
        from asyncua.server.server import Server

        logging.getLogger("asyncua").setLevel(logging.CRITICAL)
        self._server = server = Server()
        await server.init()
        server.set_endpoint(f"opc.tcp://{self.host}:{self.port}/")
        server.set_security_policy([ua.SecurityPolicyType.NoSecurity])
        self._in, self._out = (ua.NodeId.from_string(f"ns=1;s={name}") for name in ("In", "Out"))
        for node_id in (self._in, self._out):
            node = await server.nodes.objects.add_variable(
                node_id, str(node_id.Identifier), False, ua.VariantType.Boolean
            )
            if node_id == self._in:
                await node.set_writable()
        server.set_attribute_value_setter(self._in, self._on_write)
        await server.start()

    def _on_write(self, _node: Any, _attribute: Any, value: Any) -> None:
        if value.Value is not None:
            self.on_input(bool(value.Value.Value))

    async def changed(self) -> None:
        """Write the variable."""
        from asyncua import ua

        variant = ua.Variant(self.output, ua.VariantType.Boolean)
        await self._server.write_attribute_value(self._out, ua.DataValue(variant))


class WebsocketServer(BooleanServer):
    """`websockets` on asyncio."""

    async def start(self) -> None:
        """Listen."""
        from websockets.asyncio.server import serve

        self._clients: set[Any] = set()
        self._server = await serve(self._serve, self.host, self.port, compression=None, ping_interval=None)

    async def _serve(self, client: Any) -> None:
        self._clients.add(client)
        try:
            async for message in client:
                self.on_input(bool(json.loads(message)["value"]))
        finally:
            self._clients.discard(client)

    async def changed(self) -> None:
        """Send the value to all clients."""
        from websockets.asyncio.server import broadcast

        broadcast(self._clients, json.dumps({"name": "out", "value": self.output}))


class MqttServer(BooleanServer):
    """A client of the broker, which is the server for the twin."""

    async def start(self) -> None:
        """Connect to the broker, and subscribe."""
        from .mqtt_client import Client

        self._client = Client("hub", lambda payload: self.on_input(bool(payload[0] & 1)))
        await self._client.open(self.host, self.port, "in", 0)

    async def changed(self) -> None:
        """Publish the value."""
        self._client.publish("out", bytes([int(self.output)]), 0)


SERVERS: dict[str, type[BooleanServer]] = {
    "s7": S7Server,
    "modbus": ModbusServer,
    "opcua": OpcuaServer,
    "websocket": WebsocketServer,
    "mqtt": MqttServer,
}


async def each(interval_ms: float, body: Callable[[], Any]) -> None:
    """Execute a coroutine at fixed times, for ever; times that have passed are left out.  0: as often as it goes."""
    loop = asyncio.get_running_loop()
    interval = interval_ms / 1000
    due = loop.time()
    while True:
        await body()
        if not interval:
            await asyncio.sleep(0)
            continue
        due += interval * max(1, -(-(loop.time() - due) // interval))
        await asyncio.sleep(max(0.0, due - loop.time()))
