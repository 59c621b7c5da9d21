"""Every transport of ours passes the public suite."""

from twinlink.testing import TransportConformance


class TestMemory(TransportConformance):
    transport = "memory"


class TestMqtt(TransportConformance):
    transport = "mqtt"
    driver, package = "paho", "twinlink[mqtt]"


class TestTcp(TransportConformance):
    transport = "tcp"


class TestWebsocket(TransportConformance):
    transport = "websocket"
    driver, package = "websockets", "twinlink[websocket]"


class TestZeromq(TransportConformance):
    transport = "zeromq"
    driver, package = "zmq", "pyzmq"


class TestZenoh(TransportConformance):
    transport = "zenoh"
    driver, package = "zenoh", "eclipse-zenoh"
