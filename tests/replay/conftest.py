import socket
from collections.abc import Iterator

import pytest

TRANSPORTS = ("zeromq", "zenoh")


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def endpoint() -> str:
    """A loopback endpoint whose port and the next one are free."""
    return f"tcp/127.0.0.1:{next(_free_ports())}"


def _free_ports() -> Iterator[int]:
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
        yield port
