"""The Digital Twin on an asyncio event loop: reads spectrum records, and reports once a second how fresh they are."""

import asyncio

import twinlink
from twinlink.aio import AsyncLink
from twinlink.spectrum import Spectrum


async def read(link: AsyncLink) -> None:
    """Print the records of examples/gnb.py, to the last one."""
    async for message in link.receiver("spectrum"):
        record = Spectrum.decode(message.payload)
        print(f"{message.node}: record {message.sequence}, {record.n_prbs} PRBs")
        if message.sequence == 2999:
            break


async def report(link: AsyncLink) -> None:
    """Send the state of the flow to the gNB, once a second."""
    sender, freshness = link.sender("freshness"), link.sync("spectrum")
    while True:
        await asyncio.sleep(1)
        await sender.send(freshness.state.encode())


async def main() -> None:
    """Report while the records come in."""
    async with twinlink.open_async("zeromq", connect="tcp/127.0.0.1:7447", node="twin-1") as link:
        reporting = asyncio.create_task(report(link))
        await read(link)
        reporting.cancel()


asyncio.run(main())
