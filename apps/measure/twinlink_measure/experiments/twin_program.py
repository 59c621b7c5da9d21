"""A process: the twin, which writes a Boolean and waits for the PLC's processed answer.

Arguments: ``protocol`` (`boolean_clients`), ``host``, ``port``, ``poll_ms`` of polled protocols, and

- ``repetitions``: round trips, for each of which it writes ``{"ms": ...}``, null after `ANSWER_S`; or
- ``seconds`` with ``update_ms``: it changes the Boolean at that interval.

It ends with ``{"done": true}``.  A round trip begins ``update_ms`` after the last, and a part of ``spread_ms``, the
longest interval of the path; the parts follow the golden ratio, so that the phases against it are spread evenly.
"""

import asyncio
import contextlib
import math
import time

from ..send_modes import precise_sleep
from .boolean_clients import ANSWER_S, CLIENTS, BooleanClient
from .boolean_servers import each
from .program import arguments, say

GOLDEN = (math.sqrt(5) - 1) / 2


async def round_trip(client: BooleanClient, value: bool) -> float | None:
    """Write, and wait until the output has the value; the time in ms."""
    began = time.monotonic_ns()
    await client.write(value)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            while client.output != value:
                client.news.clear()
                await client.news.wait()
            return (time.monotonic_ns() - began) / 1e6
    return None


async def main() -> None:
    """Do it."""
    given = arguments()
    precise_sleep()
    client = CLIENTS[given["protocol"]](given["host"], given["port"])
    await client.open()
    polls = asyncio.ensure_future(each(given["poll_ms"], client.poll)) if client.polled else None
    value = False
    for _ in range(3):  # not counted
        value = not value
        await round_trip(client, value)
    say(ready=True)
    update_s, spread_s, part = given["update_ms"] / 1000, given["spread_ms"] / 1000, 0.0
    for _ in range(given.get("repetitions", 0)):
        part = (part + GOLDEN) % 1
        await asyncio.sleep(update_s + part * spread_s)
        value = not value
        say(ms=await round_trip(client, value))
    if "seconds" in given:
        end = time.monotonic() + given["seconds"]

        async def update() -> None:
            nonlocal value
            value = not value
            await client.write(value)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(end - time.monotonic()):
                await each(given["update_ms"], update)
    if polls is not None:
        polls.cancel()
    say(done=True)


if __name__ == "__main__":
    asyncio.run(main())
