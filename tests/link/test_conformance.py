"""Every transport of ours passes the public suite."""

from twinlink.testing import TransportConformance


class TestMemory(TransportConformance):
    transport = "memory"


class TestZeromq(TransportConformance):
    transport = "zeromq"
    driver, package = "zmq", "pyzmq"


class TestZenoh(TransportConformance):
    transport = "zenoh"
    driver, package = "zenoh", "eclipse-zenoh"
