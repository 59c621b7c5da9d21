"""Nobody who sends waits for a transport that makes others wait, or for what nobody is known to hear."""

import threading

import twinlink
from twinlink.testing import free_endpoint, patience, wait_until


def test_who_sends_does_not_wait_for_a_long_message_of_another_flow() -> None:
    """Zenoh takes one message of a priority at a time, however long that takes."""
    endpoint = free_endpoint()
    with (
        twinlink.open("memory", listen=endpoint) as listener,
        twinlink.open("memory", connect=endpoint) as connector,
    ):
        connector.wait_ready(patience(5))
        bulk, small = connector.sender("bulk"), connector.sender("small")
        queue, begun, taken = threading.Lock(), threading.Event(), threading.Event()
        transport = connector._transport
        hand_over = transport.send

        def send(topic: bytes, frame: bytes) -> None:
            if not topic.startswith((b"traffic/bulk", b"traffic/small")):
                hand_over(topic, frame)
                return
            with queue:
                if len(frame) > transport.direct_octets:
                    begun.set()
                    assert taken.wait(patience(10))
                hand_over(topic, frame)

        transport.send = send  # type: ignore[method-assign]
        bulk.send(bytes(transport.direct_octets))
        assert begun.wait(patience(5))
        sending = threading.Thread(target=lambda: [small.send(bytes([number])) for number in range(100)])
        sending.start()
        sending.join(patience(5))
        was_held = sending.is_alive()
        taken.set()
        sending.join()
        assert not was_held
        received = listener.receiver("small")
        messages = [received.receive(timeout=patience(5)) for _ in range(100)]
        assert [bytes(message.payload) for message in messages if message] == [bytes([n]) for n in range(100)]
        wait_until(lambda: bulk.stats()["acknowledged"] == 1, patience(5))


def test_what_nobody_is_known_to_hear_is_only_offered() -> None:
    """A plain subscriber may hear it; one that takes nothing is not to make the application wait."""
    endpoint = free_endpoint()
    with twinlink.open("memory", listen=endpoint) as link:
        sender, offered = link.sender("flow"), []
        link._transport.offer = lambda topic, frame: offered.append(topic)  # type: ignore[method-assign]
        sender.send(b"")
        assert offered == [b"traffic/flow"]
        with twinlink.open("memory", connect=endpoint) as peer:
            link.wait_ready(patience(5))
            inbox = peer.receiver("flow")
            sender.send(b"heard")
            message = inbox.receive(timeout=patience(5))
            assert message is not None
            assert bytes(message.payload) == b"heard"
        assert offered == [b"traffic/flow"]
