"""What only the Zenoh transport has."""

import twinlink
from twinlink.testing import free_endpoint, patience
from twinlink.transports import Endpoint
from twinlink.transports.zenoh import ZenohOptions, ZenohTransport
from twinlink.wire import Kind, frame


def test_a_connector_that_renews_its_session_misses_nothing() -> None:
    endpoint = free_endpoint()
    with (
        twinlink.open("zenoh", listen=endpoint, node="listener") as listener,
        twinlink.open("zenoh", connect=endpoint, node="connector") as connector,
    ):
        for link in (listener, connector):
            link.wait_ready(patience(10))
        there, back = connector.sender("there"), listener.sender("back")
        for number in range(300):
            there.send(number.to_bytes(2))
            back.send(number.to_bytes(2))
            if number == 100:
                connector.lead.act(connector._transport.renew)
        for sender, link in ((there, listener), (back, connector)):
            sender.flush(patience(20))
            inbox = link.receiver(sender.flow)
            received = [inbox.receive(timeout=patience(10)) for _ in range(300)]
            assert [int.from_bytes(message.payload) for message in received if message] == list(range(300))


def test_a_frame_with_the_tail_of_another_is_dropped() -> None:
    """As Zenoh makes them when a connection ends in the middle of one: right header, right length."""
    endpoint = Endpoint.parse(free_endpoint())
    listener = ZenohTransport(endpoint, True, 2**20, ZenohOptions())
    listener.open()
    try:
        one, other = (frame(Kind.DATA, 7, number, 1000 + number, bytes(100)) for number in range(2))
        sealed = [listener.join(octets[:32], octets[32:]) for octets in (one, other)]
        glued = sealed[0][:90] + sealed[1][90:]
        publisher = listener._session.declare_publisher("traffic/flow")
        for octets in (sealed[0], glued, sealed[1]):
            publisher.put(octets)
        received: list[tuple[bytes, bytes]] = []
        while len(received) < 3:
            if (message := listener.receive(0.5)) is not None:
                received.append((message[0], bytes(message[1])))
        assert received == [(b"traffic/flow", one), (b"", b""), (b"traffic/flow", other)]
    finally:
        listener.close()
