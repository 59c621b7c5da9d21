"""A connection that is taken and never answered, as through a tunnel whose far end is gone."""

import contextlib
import socket
import time

import pytest

import twinlink
from twinlink.testing import free_endpoint, patience, wait_until
from twinlink.transport_options import TransportName

SOON_S = 10.0  # libzmq itself waits 30 s for a handshake
UP_S = 0.5  # a peer that has been up for a moment tries again as it did before, not with more patience in turns


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
def test_is_given_up_for_one_that_is_answered(transport: TransportName) -> None:
    endpoint = free_endpoint()
    first = int(endpoint.rpartition(":")[2])
    ports = (first, first + 1) if transport == "zeromq" else (first,)
    with twinlink.open(transport, connect=endpoint) as link, contextlib.ExitStack() as silent:
        with twinlink.open(transport, listen=endpoint):
            link.wait_ready(patience())
            time.sleep(UP_S)
        for port in ports:
            with socket.create_server(("127.0.0.1", port)) as server:
                server.settimeout(patience())
                silent.enter_context(server.accept()[0])
        with twinlink.open(transport, listen=endpoint):
            wait_until(link.peers, SOON_S)
