"""A connection on which nothing comes is ended, with advice that fits the side."""

import logging
import socket

import pytest

import twinlink
from twinlink.testing import wait_until
from twinlink.transport_options import TransportName


@pytest.mark.parametrize("transport", ["zeromq", "websocket", "tcp"])
def test_a_listener_names_what_to_look_at(
    transport: TransportName, endpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with (
        twinlink.open(transport, listen=endpoint),
        socket.create_connection(("127.0.0.1", int(endpoint.rpartition(":")[2]))),
    ):
        wait_until(lambda: "had not begun the handshake after a second" in caplog.text)
    assert "ended the connection of 127.0.0.1:" in caplog.text
    assert "see which program that is" in caplog.text
    assert "raise the option" not in caplog.text


def test_a_connector_is_not_told_of_limits_that_a_listener_has(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"tcp/127.0.0.1:{silent.getsockname()[1]}"
        with twinlink.open("zeromq", connect=endpoint):
            wait_until(lambda: "had not begun the handshake after a second" in caplog.text)
    assert "ended the connection to 127.0.0.1:" in caplog.text
    assert "see that a listener with this transport is at that address" in caplog.text
    assert "raise the option" not in caplog.text
