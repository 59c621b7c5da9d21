"""A process: the server of a PLC, which offers 16-bit words by HTTP or Modbus, and answers at the end of its sweep.

Arguments: ``protocol``, ``host``, ``port``, ``words``, ``sweep_ms``.  HTTP: ``GET /words``, values as six decimal
characters each; the header leaves at once, and the values at the end of the sweep, as the paper's PLC does it.  Modbus:
holding registers of unit 1, by function 3.
"""

import asyncio
import math
import time
from typing import Any

from ..send_modes import precise_sleep
from .program import arguments, ended, say


class Sweep:
    """The scan cycle, at fixed times."""

    def __init__(self, sweep_ms: float) -> None:
        self._s = sweep_ms / 1000

    async def end(self) -> None:
        """Return at its end."""
        if self._s:
            await asyncio.sleep(self._s - math.fmod(time.monotonic(), self._s))


async def serve_http(given: dict[str, Any], sweep: Sweep) -> None:
    """aiohttp."""
    from aiohttp import web

    body = "".join(f"{value % 100_000:>6}" for value in range(given["words"])).encode()

    async def words(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(body))})
        await response.prepare(request)
        await sweep.end()
        await response.write(body)
        return response

    application = web.Application()
    application.router.add_get("/words", words)
    runner = web.AppRunner(application, access_log=None, keepalive_timeout=3600)
    await runner.setup()
    await web.TCPSite(runner, given["host"], given["port"]).start()


async def serve_modbus(given: dict[str, Any], sweep: Sweep) -> None:
    """pymodbus."""
    from pymodbus.server import ModbusTcpServer
    from pymodbus.simulator import DataType, SimData, SimDevice

    async def on_request(*_: Any) -> None:
        await sweep.end()

    registers = [SimData(0, count=given["words"], values=0, datatype=DataType.REGISTERS)]
    server = ModbusTcpServer([SimDevice(1, registers, action=on_request)], address=(given["host"], given["port"]))
    await server.serve_forever(background=True)


async def main() -> None:
    """Serve until stdin ends."""
    given = arguments()
    precise_sleep()
    serve = {"http": serve_http, "modbus": serve_modbus}[given["protocol"]]
    await serve(given, Sweep(given["sweep_ms"]))
    say(ready=True)
    await asyncio.to_thread(ended().wait)


if __name__ == "__main__":
    asyncio.run(main())
