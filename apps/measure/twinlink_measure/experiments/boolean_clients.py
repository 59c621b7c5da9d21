"""Clients of `boolean_servers`: the twin's side, by protocol."""

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from typing import Any

ANSWER_S = 10.0


class BooleanClient(ABC):
    """A client on the running asyncio loop.

    Attributes:
        output: the newest value that is known.
        news: set whenever `output` was told or read.
        polled: whether the output must be polled for.
    """

    polled = False

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.output = False
        self.news = asyncio.Event()

    @abstractmethod
    async def open(self) -> None:
        """Connect.  Raises OSError."""

    @abstractmethod
    async def write(self, value: bool) -> None:
        """Write the input."""

    async def poll(self) -> None:  # noqa: B027  (only where it is polled)
        """Read the output."""

    def take(self, value: bool) -> None:
        """A value of the output has come."""
        self.output = value
        self.news.set()


class ModbusClient(BooleanClient):
    """pymodbus."""

    polled = True

    async def open(self) -> None:
        """Connect."""
        from pymodbus.client import AsyncModbusTcpClient

        self._client = AsyncModbusTcpClient(self.host, port=self.port, timeout=ANSWER_S, retries=0)
        if not await self._client.connect():
            raise OSError(f"no Modbus server can be reached at {self.host}:{self.port}")

    async def write(self, value: bool) -> None:
        """WriteSingleRegister."""
        await self._client.write_register(0, int(value), device_id=1)

    async def poll(self) -> None:
        """ReadHoldingRegisters."""
        answer = await self._client.read_holding_registers(1, count=1, device_id=1)
        if not answer.isError():
            self.take(bool(answer.registers[0] & 1))


class OpcuaClient(BooleanClient):
    """asyncua: Write, and Read."""

    polled = True

    async def open(self) -> None:
        """Connect."""
        from asyncua import ua
        from asyncua.client.client import Client

        logging.getLogger("asyncua").setLevel(logging.CRITICAL)
        url = f"opc.tcp://{self.host}:{self.port}/"
        self._client = client = Client(url, timeout=ANSWER_S, watchdog_intervall=3600)
        await client.connect()
        self._in, self._out = (client.get_node(ua.NodeId.from_string(f"ns=1;s={name}")) for name in ("In", "Out"))

    async def write(self, value: bool) -> None:
        """Write the variable, without a timestamp: open62541's server refuses one."""
        from asyncua import ua

        await self._in.write_value(ua.DataValue(ua.Variant(value, ua.VariantType.Boolean)))

    async def poll(self) -> None:
        """Read the variable."""
        self.take(bool(await self._out.read_value()))


class OpcuaSubscriber(OpcuaClient):
    """asyncua: Write, and a subscription that publishes each 50 ms."""

    polled = False

    async def open(self) -> None:
        """Connect, and subscribe."""
        await super().open()
        client = self

        class Handler:
            def datachange_notification(self, _node: Any, value: bool, _data: Any) -> None:
                client.take(bool(value))

        subscription = await self._client.create_subscription(50, Handler())
        await subscription.subscribe_data_change(self._out)


class WebsocketClient(BooleanClient):
    """`websockets` on asyncio."""

    async def open(self) -> None:
        """Connect."""
        from websockets.asyncio.client import connect

        self._client = await connect(f"ws://{self.host}:{self.port}", compression=None, ping_interval=None, proxy=None)
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        async for message in self._client:
            self.take(bool(json.loads(message)["value"]))

    async def write(self, value: bool) -> None:
        """Send a JSON object."""
        await self._client.send(json.dumps({"name": "in", "value": value}))


class MqttClient(BooleanClient):
    """A client of the broker."""

    async def open(self) -> None:
        """Connect, and subscribe."""
        from .mqtt_client import Client

        self._client = Client("twin", lambda payload: self.take(bool(payload[0] & 1)))
        await self._client.open(self.host, self.port, "out", 0)

    async def write(self, value: bool) -> None:
        """Publish."""
        self._client.publish("in", bytes([int(value)]), 0)


CLIENTS: dict[str, type[BooleanClient]] = {
    "modbus": ModbusClient,
    "opcua": OpcuaClient,
    "opcua-sub": OpcuaSubscriber,
    "websocket": WebsocketClient,
    "mqtt": MqttClient,
}
