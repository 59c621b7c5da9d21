"""A process: a hub between the twin and a PLC.  It serves one protocol, and is an S7 client of the PLC.

Arguments: ``protocol`` (`boolean_servers`), ``host``, ``port`` of its server; ``plc_host``, ``plc_port``;

- ``poll_ms``: interval at which it reads the PLC's output;
- ``writes``: ``at-once``, or ``each-poll`` for values that it fetches from its own server at that interval, as a flow
  on a Modbus or OPC UA server does;
- ``sampling_ms``: interval at which its server samples the output; 0 for each value.
"""

import asyncio

from snap7.client import Client

from ..send_modes import precise_sleep
from .boolean_servers import SERVERS, each
from .program import arguments, ended, say


class Plc:
    """The PLC, by two connections: one for writing, one for reading."""

    def __init__(self, host: str, port: int) -> None:
        self._writing, self._reading = Client(), Client()
        for client in (self._writing, self._reading):
            client.connect(host, 0, 1, port)

    async def write(self, value: bool) -> None:
        """Write the input."""
        await asyncio.to_thread(self._writing.db_write, 1, 0, bytearray([int(value)]))

    async def read(self) -> bool:
        """Read the output."""
        return bool((await asyncio.to_thread(self._reading.db_read, 2, 0, 1))[0] & 1)


class Hub:
    """Carries the input to the PLC and the output back."""

    def __init__(self, plc: Plc) -> None:
        self._plc = plc
        self._written: bool | None = None  # by the twin, and not carried yet
        self.wake = asyncio.Event()
        self.seen = False  # the output, as last read

    def on_input(self, value: bool) -> None:
        """The twin has written."""
        self._written = value
        self.wake.set()

    async def carry(self) -> None:
        """Write what the twin has written."""
        value, self._written = self._written, None
        if value is not None:
            await self._plc.write(value)

    async def carry_at_once(self) -> None:
        """The same whenever the twin writes."""
        while True:
            await self.wake.wait()
            self.wake.clear()
            await self.carry()

    async def look(self) -> None:
        """Read the output."""
        self.seen = await self._plc.read()


async def main() -> None:
    """Serve until stdin ends."""
    given = arguments()
    precise_sleep()
    hub = Hub(await asyncio.to_thread(Plc, given["plc_host"], given["plc_port"]))
    server = SERVERS[given["protocol"]](given["host"], given["port"], hub.on_input)
    await server.start()

    async def turn() -> None:
        if given["writes"] == "each-poll":
            await hub.carry()
        await hub.look()
        if not given["sampling_ms"]:
            await server.show(hub.seen)

    tasks = [asyncio.ensure_future(each(given["poll_ms"], turn))]
    if given["writes"] == "at-once":
        tasks.append(asyncio.ensure_future(hub.carry_at_once()))
    if given["sampling_ms"]:
        tasks.append(asyncio.ensure_future(each(given["sampling_ms"], lambda: server.show(hub.seen))))
    say(ready=True)
    stopping = asyncio.ensure_future(asyncio.to_thread(ended().wait))
    await asyncio.wait((*tasks, stopping), return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()


if __name__ == "__main__":
    asyncio.run(main())
