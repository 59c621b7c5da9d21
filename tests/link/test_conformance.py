"""Every transport of ours passes the public suite: WebSocket, which differs from tcp in framing, by `make thorough`."""

import pytest

from twinlink.testing import TransportConformance
from twinlink.testing.delivery import Delivery


class TestMemory(TransportConformance):
    transport = "memory"


class TestMqtt(TransportConformance):
    transport = "mqtt"
    driver, package = "paho", "twinlink[mqtt]"


class TestTcp(TransportConformance):
    transport = "tcp"


class TestWebsocketFraming(Delivery):
    transport = "websocket"
    driver, package = "websockets", "twinlink[websocket]"


@pytest.mark.thorough
class TestWebsocket(TransportConformance):
    transport = "websocket"
    driver, package = "websockets", "twinlink[websocket]"


class TestZeromq(TransportConformance):
    transport = "zeromq"
    driver, package = "zmq", "pyzmq"


class TestZenoh(TransportConformance):
    transport = "zenoh"
    driver, package = "zenoh", "eclipse-zenoh"
