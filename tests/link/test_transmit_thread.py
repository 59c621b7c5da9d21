"""A sending thread waits neither for a transport that makes others wait, nor for what no peer is known to hear."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import twinlink
from twinlink.protocol.frames import HEADER_OCTETS, Kind, check, parse
from twinlink.protocol.send.congestion import MAX_BDP_OCTETS
from twinlink.testing import free_endpoint, patience, wait_until


def test_a_long_message_leaves_room_for_others() -> None:
    """Only so much of it is under way that the transport need not wait; the peer says how much is there."""
    endpoint = free_endpoint()
    with (
        twinlink.open("memory", listen=endpoint) as listener,
        twinlink.open("memory", connect=endpoint) as connector,
    ):
        connector.wait_ready(patience())
        bulk, small = connector.sender("bulk"), connector.sender("small")
        inbox, beside = listener.receiver("bulk"), listener.receiver("small")
        at_once, answer = connector._transport.direct_octets, listener._transport.send
        silent = True

        def send(topic: bytes, frame: bytes) -> None:
            if not (silent and check(frame) is Kind.FRAGMENT_PROGRESS):
                answer(topic, frame)

        listener._transport.send = send  # type: ignore[method-assign]
        left = 0  # octets of the frame
        hand_over = connector._transport.send

        def note(topic: bytes, frame: bytes) -> None:
            nonlocal left
            kind, _, before, _ = parse(frame)
            assert kind is not Kind.DATA or topic != b"traffic/bulk"
            if kind is Kind.FRAGMENT:
                left = max(left, before + len(frame) - HEADER_OCTETS)
            hand_over(topic, frame)

        connector._transport.send = note  # type: ignore[method-assign]
        payload = random.Random(1).randbytes(4 * at_once)
        bulk.send(payload)
        wait_until(lambda: left, patience())
        for number in range(10):
            small.send(bytes([number]))
            message = beside.receive(timeout=patience())
            assert message is not None
            assert bytes(message.payload) == bytes([number])
        assert left <= at_once + MAX_BDP_OCTETS < len(payload)
        assert inbox.receive(timeout=0) is None
        silent = False
        message = inbox.receive(timeout=patience())
        assert message is not None
        assert bytes(message.payload) == payload
        wait_until(lambda: bulk.stats()["acknowledged"] == 1, patience())


def test_what_is_missing_is_asked_behind_all_that_was_sent() -> None:
    """Also behind what a thread that sends is still handing over: else it would be sent again, and come twice."""
    endpoint = free_endpoint()
    with (
        twinlink.open("memory", listen=endpoint) as listener,
        twinlink.open("memory", connect=endpoint) as connector,
        ThreadPoolExecutor() as threads,
    ):
        connector.wait_ready(patience())
        sender, inbox = connector.sender("flow"), listener.receiver("flow")
        left: list[Kind] = []
        held, goes_on, hand_over = threading.Event(), threading.Event(), connector._transport.send

        def send(topic: bytes, frame: bytes) -> None:
            kind = check(frame)
            if kind is Kind.DATA:
                held.set()
                assert goes_on.wait(patience())
            if topic == b"traffic/flow":
                left.append(kind)
            hand_over(topic, frame)

        connector._transport.send = send  # type: ignore[method-assign]
        sending = threads.submit(sender.send, b"x")
        assert held.wait(patience())
        with connector._driver.lock:
            sender._flow.probe()
        connector._driver.wake_transmit()
        time.sleep(0.3)  # what must not happen gets time to
        goes_on.set()
        sending.result()
        assert inbox.receive(timeout=patience()) is not None
        wait_until(lambda: Kind.ABANDONED in left, patience())
        sender.flush(patience())
        assert left[0] is Kind.DATA
        assert Kind.RETRANSMIT not in left
        assert listener.stats()["received"]["flow"]["duplicates"] == 0


def test_what_nobody_is_known_to_hear_is_only_offered() -> None:
    """A plain subscriber may hear it; one that takes nothing is not to make the application wait."""
    endpoint = free_endpoint()
    with twinlink.open("memory", listen=endpoint) as link:
        sender, offered = link.sender("flow"), []
        link._transport.offer = lambda topic, frame: offered.append(topic)  # type: ignore[method-assign]
        sender.send(b"")
        assert offered == [b"traffic/flow"]
        with twinlink.open("memory", connect=endpoint) as peer:
            link.wait_ready(patience())
            inbox = peer.receiver("flow")
            sender.send(b"heard")
            message = inbox.receive(timeout=patience())
            assert message is not None
            assert bytes(message.payload) == b"heard"
        assert offered == [b"traffic/flow"]


@pytest.mark.parametrize("ours", [True, False])
def test_bulk_leaves_room_for_control_whoever_sends_it(ours: bool) -> None:
    endpoint = free_endpoint()
    with (
        twinlink.open("memory", listen=endpoint) as listener,
        twinlink.open("memory", connect=endpoint) as connector,
    ):
        connector.wait_ready(patience())
        bulk = connector.sender("bulk")
        (connector if ours else listener).sender("control").send(b"")
        octets = connector._transport.whole_octets // 2  # without control it would go whole
        wait_until(lambda: bulk._flow.in_flight.budget.unfragmented < octets, patience())
        parts: list[int] = []
        hand_over = connector._transport.send

        def note(topic: bytes, frame: bytes) -> None:
            if topic == b"traffic/bulk" and check(frame) is Kind.FRAGMENT:
                parts.append(len(frame))
            hand_over(topic, frame)

        connector._transport.send = note  # type: ignore[method-assign]
        bulk.send(bytes(octets))
        bulk.flush(patience())
        assert sum(parts) > octets
