import socket

import pytest


@pytest.fixture
def endpoint() -> str:
    """A free port on loopback; the one behind it is free too, for transports that take two."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return f"tcp/127.0.0.1:{port}"
