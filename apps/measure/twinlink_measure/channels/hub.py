"""A WebSocket hub: passes each message of a client to all other clients, as the hub of a plant does.

`python -m twinlink_measure.channels.hub HOST PORT` prints a line when it listens, and ends when stdin does.  It is
`websockets` on asyncio; a client that takes nothing holds up the client that sends.
"""

import asyncio
import contextlib
import os
import sys

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from twinlink.process.guarded_thread import GuardedThread

from .base import MAX_FRAME


class Hub:
    """The clients that are connected."""

    def __init__(self) -> None:
        self._clients: set[ServerConnection] = set()

    async def serve(self, client: ServerConnection) -> None:
        """Pass on the messages of one client until it leaves."""
        self._clients.add(client)
        try:
            async for message in client:
                for other in self._clients - {client}:
                    with contextlib.suppress(ConnectionClosed):
                        await other.send(message)
        except ConnectionClosed:
            pass
        finally:
            self._clients.discard(client)


async def main(host: str, port: int) -> None:
    """Serve for ever."""
    async with serve(Hub().serve, host, port, compression=None, max_size=MAX_FRAME, ping_interval=None) as server:
        print("listens", flush=True)
        await server.serve_forever()


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    GuardedThread(_end_with_stdin, "end-with-stdin").start()
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
