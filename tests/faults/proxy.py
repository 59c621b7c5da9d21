"""A TCP proxy that misbehaves: `python -m tests.faults.proxy HOST FIRST_PORT PORTS`, from 127.0.0.1 at the same ports.

It is told on standard input: ``pass`` (everything on, at once), ``slice OCTETS PAUSE_US``, ``stall``, ``reset``.
"""

import asyncio
import contextlib
import functools
import socket
import struct
import sys
import threading

CHUNK = 64 * 1024


class Proxy:
    """All connections of one proxy, and how it treats them."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.octets = CHUNK
        self.pause_s = 0.0
        self.going = asyncio.Event()
        self.going.set()
        self.writers: set[asyncio.StreamWriter] = set()

    async def serve(self, first: int, ports: int) -> None:
        for port in range(first, first + ports):
            await asyncio.start_server(functools.partial(self.connect, port), "127.0.0.1", port)
        print("listening", flush=True)

    async def connect(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(self.host, port)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, far_writer}
        self.writers |= pair
        tasks = [
            asyncio.create_task(self.carry(reader, far_writer)), asyncio.create_task(self.carry(far_reader, writer))
        ]  # fmt: skip
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for one in pair:
            one.transport.abort()
        self.writers -= pair

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while octets := await reader.read(CHUNK):
                while octets:
                    await self.going.wait()
                    part, octets = octets[: self.octets], octets[self.octets :]
                    writer.write(part)
                    await writer.drain()
                    if self.pause_s:
                        await asyncio.sleep(self.pause_s)

    def obey(self, line: str) -> None:
        word, *arguments = line.split()
        if word == "stall":
            self.going.clear()
            return
        self.going.set()
        self.octets, self.pause_s = CHUNK, 0.0
        if word == "slice":
            self.octets, self.pause_s = int(arguments[0]), int(arguments[1]) / 1e6
        elif word == "reset":
            for writer in self.writers:
                linger = struct.pack("ii", 1, 0)  # close then sends a reset
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()


async def run(host: str, first: int, ports: int) -> None:
    proxy = Proxy(host)
    await proxy.serve(first, ports)
    loop, end = asyncio.get_running_loop(), asyncio.Event()

    def listen() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(proxy.obey, line)
        loop.call_soon_threadsafe(end.set)

    threading.Thread(target=listen, daemon=True).start()
    await end.wait()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
