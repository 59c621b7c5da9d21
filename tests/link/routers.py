"""A Zenoh router in a process of its own, which tests start, kill and start again."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from twinlink.testing import free_endpoint
from twinlink.testing.base import patience

ROUTER = """
import json, sys, zenoh
written = sys.argv[1].endswith(".json5")
config = zenoh.Config.from_file(sys.argv[1]) if written else zenoh.Config()
settings = {
    "mode": "router",
    "listen/endpoints": [sys.argv[1]],
    "connect/endpoints": sys.argv[2:],
    "scouting/multicast/enabled": False,
    "scouting/gossip/enabled": False,
}
for key, value in () if written else settings.items():
    config.insert_json5(key, json.dumps(value))
with zenoh.open(config):
    print("ready", flush=True)
    sys.stdin.read()
"""


class Router:
    """One router at an endpoint of its own; runs until `kill`.

    Attributes:
        endpoint: where it listens.
    """

    def __init__(self, *upstream: "Router", endpoint: str | None = None, configuration: Path | None = None) -> None:
        """``upstream``: routers that it connects to; or ``configuration``: a file for zenohd, with its endpoint."""
        self.endpoint = endpoint or free_endpoint(1)
        self._arguments = (
            [str(configuration)] if configuration else [self.endpoint, *(one.endpoint for one in upstream)]
        )
        self.start()

    def start(self) -> None:
        """Start it, again if need be; returns when it listens."""
        command = [sys.executable, "-c", ROUTER, *self._arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", "the router did not start"

    def kill(self) -> None:
        """End it as a crash would, without a word to the nodes."""
        self._process.kill()
        self._process.communicate(timeout=patience())


@contextlib.contextmanager
def routers(count: int) -> Iterator[list[Router]]:
    """So many routers in a row, each connected to the one before."""
    row: list[Router] = []
    try:
        for _ in range(count):
            row.append(Router(*row[-1:]))
        yield row
    finally:
        for router in row:
            router.kill()
