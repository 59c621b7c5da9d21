"""Modbus TCP (Modbus Application Protocol V1.1b3): pymodbus's client and server, mailboxes in holding registers.

Unit 1 has the mailbox that the client writes (function 16, up to 123 registers), unit 2 the one that it reads
(function 3, up to 125).
"""

import asyncio
import socket
import struct

from pymodbus.client import ModbusTcpClient
from pymodbus.constants import ExcCodes
from pymodbus.exceptions import ModbusException
from pymodbus.pdu import ModbusPDU
from pymodbus.server import ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

from twinlink.transports import Endpoint

from .base import PeerLost
from .loop import LoopThread
from .mailbox import MODBUS, MailboxChannel
from .polled import ANSWER_S

WRITTEN_UNIT, READ_UNIT = 1, 2
Values = list[int] | list[bool] | None


class ModbusChannel(MailboxChannel):
    """Options: ``no_delay`` (TCP_NODELAY) of the client; those of `PolledChannel`."""

    memory = MODBUS

    def __init__(self, endpoint: Endpoint, listening: bool, node: str, options: dict[str, object]) -> None:
        super().__init__(endpoint, listening, node, options)
        self._loop: LoopThread | None = None
        self._server: ModbusTcpServer | None = None
        # One for the thread that sends, one for the thread that receives.
        self._writing, self._reading = (
            ModbusTcpClient(endpoint.host.strip("[]"), port=endpoint.port, timeout=ANSWER_S, retries=0)
            for _ in range(2)
        )

    def open(self) -> None:
        """Listen, or connect.  Raises OSError."""
        if self.listening:
            self._loop = LoopThread()
            self._loop.run(self._listen())
            return
        for client in (self._writing, self._reading):
            client.connect()  # type: ignore[no-untyped-call]
            if client.socket is None:
                raise OSError(f"no Modbus server can be reached at {self.endpoint}")
            client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(bool(self.options["no_delay"])))

    async def _listen(self) -> None:
        registers = [SimData(0, count=MODBUS.octets // 2, values=0, datatype=DataType.REGISTERS)]
        units = ((WRITTEN_UNIT, self._on_write), (READ_UNIT, self._on_read))
        devices = [SimDevice(unit, registers, action=action) for unit, action in units]
        self._server = ModbusTcpServer(devices, address=(self.endpoint.host.strip("[]"), self.endpoint.port))
        await self._server.serve_forever(background=True)

    async def _on_write(
        self, _function: int, _start: int, address: int, count: int, _registers: list[int], values: Values
    ) -> ExcCodes | None:
        """A request to unit 1, before pymodbus executes it."""
        await self._end_of_sweep()
        if values is not None:
            struct.pack_into(f"!{count}H", self.written.memory, 2 * address, *values)
            if address == 0 and (frame := self.written.take()) is not None:
                self.arrived(frame)
        return None

    async def _on_read(
        self, _function: int, _start: int, address: int, count: int, registers: list[int], values: Values
    ) -> ExcCodes | None:
        """A request to unit 2; pymodbus answers with ``registers``."""
        if values is not None:
            return ExcCodes.ILLEGAL_FUNCTION  # it is for reading
        await self._end_of_sweep()
        registers[address : address + count] = struct.unpack_from(f"!{count}H", self.read.memory, 2 * address)
        self.read.was_read(2 * (address + count))
        return None

    async def _end_of_sweep(self) -> None:
        if left_s := self.sweep_left_s():
            await asyncio.sleep(left_s)

    def write_at(self, first: int, octets: bytes) -> None:
        """Write Multiple Registers."""
        padded = octets + bytes(len(octets) % 2)
        values = list(struct.unpack(f"!{len(padded) // 2}H", padded))
        try:
            answer = self._writing.write_registers(first // 2, values, device_id=WRITTEN_UNIT)
        except (ModbusException, OSError) as error:
            raise PeerLost(f"writing registers at {self.endpoint} failed: {error}") from error
        self._check(answer)

    def read_at(self, first: int, count: int) -> bytes:
        """Read Holding Registers."""
        try:
            answer = self._reading.read_holding_registers(first // 2, count=(count + 1) // 2, device_id=READ_UNIT)
        except (ModbusException, OSError) as error:
            raise PeerLost(f"reading registers at {self.endpoint} failed: {error}") from error
        self._check(answer)
        return struct.pack(f"!{len(answer.registers)}H", *answer.registers)

    def _check(self, answer: ModbusPDU) -> None:
        if answer.isError():
            raise PeerLost(f"the Modbus server at {self.endpoint} answered with {answer}")

    def close(self) -> None:
        """Close the connections, and end the server."""
        for client in (self._writing, self._reading):
            client.close()  # type: ignore[no-untyped-call]
        if self._loop is not None:
            if self._server is not None:
                self._loop.run(self._server.shutdown())  # type: ignore[no-untyped-call]
            self._loop.close()
