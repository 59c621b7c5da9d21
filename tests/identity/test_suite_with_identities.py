"""The conformance suite between nodes with identities: a few of its tests, or all with ``TWINLINK_TEST_WHOLE=1``.

All of them take a minute and a half for each transport.
"""

import os

from tests.identity.nodes import needs_mosquitto
from twinlink.testing import TransportConformance

WHOLE = os.environ.get("TWINLINK_TEST_WHOLE") == "1"
FEW = {"test_random_octets", "test_a_bundle_is_taken_apart", "test_several_connectors_on_one_listener"}


class Authenticated(TransportConformance):
    identities = True

    def __init_subclass__(cls) -> None:
        for name in dir(cls):
            if name.startswith("test_") and not (WHOLE or name in FEW):
                setattr(cls, name, None)


class TestZeromq(Authenticated):
    transport = "zeromq"
    driver, package = "zmq", "pyzmq"


class TestZenoh(Authenticated):
    transport = "zenoh"
    driver, package = "zenoh", "eclipse-zenoh"


class TestWebsocket(Authenticated):
    transport = "websocket"
    driver, package = "websockets", "twinlink[websocket]"


class TestTcp(Authenticated):
    transport = "tcp"


@needs_mosquitto
class TestMqtt(Authenticated):
    transport = "mqtt"
    driver, package = "paho", "twinlink[mqtt]"
