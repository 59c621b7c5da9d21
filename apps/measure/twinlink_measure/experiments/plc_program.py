"""A process: a PLC with a cyclic program, whose output is its input.

Arguments: ``protocol`` of its server (`boolean_servers`), ``host``, ``port``, ``cycle_ms``.  A value that is written
takes effect in the next cycle.
"""

import asyncio

from ..send_modes import precise_sleep
from .boolean_servers import SERVERS, each
from .program import arguments, ended, say


async def main() -> None:
    """Run cycles until stdin ends."""
    given = arguments()
    precise_sleep()
    written = [False]

    def on_input(value: bool) -> None:
        written[0] = value

    server = SERVERS[given["protocol"]](given["host"], given["port"], on_input)
    await server.start()
    cycles = asyncio.ensure_future(each(given["cycle_ms"], lambda: server.show(written[0])))
    say(ready=True)
    stopping = asyncio.ensure_future(asyncio.to_thread(ended().wait))
    await asyncio.wait((cycles, stopping), return_when=asyncio.FIRST_COMPLETED)
    if cycles.done():
        cycles.result()


if __name__ == "__main__":
    asyncio.run(main())
