"""The window: what the application consumes frees it, however threads fall over each other."""

import collections
import contextlib
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

import twinlink
from twinlink.protocol.send.flow_control import MAX_UNREPORTED_ACKS
from twinlink.protocol.send.flows import REST_TICKS
from twinlink.testing.base import free_endpoint, patience, wait_until
from twinlink.transport_options import TransportName

MESSAGES = 200


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads change every microsecond, so that one consumes while another is between two lines."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
@pytest.mark.parametrize("transport", ["memory", "zeromq", "zenoh"])
def test_a_consumer_that_polls_while_another_thread_receives_frees_the_window(transport: TransportName) -> None:
    endpoint = free_endpoint()
    stop = threading.Event()
    with (
        twinlink.open(transport, listen=endpoint, node="sender", window=2**20, send_timeout=patience()) as link,
        twinlink.open(transport, connect=endpoint, node="receiver", window=2**20) as peer,
    ):
        link.wait_ready(patience())
        sender, receiver, consumed = link.sender("flow"), peer.receiver("flow"), []

        def poll() -> None:
            while not stop.is_set():
                message = receiver.receive(timeout=0)
                if message is not None:
                    consumed.append(message.sequence)

        poller = threading.Thread(target=poll)
        poller.start()
        try:
            for _ in range(MESSAGES):
                sender.send(bytes(900_000))  # the next one has room only when this one is consumed, and known to be
            sender.flush(patience())
        finally:
            stop.set()
            poller.join()
        while (message := receiver.receive(timeout=0)) is not None:
            consumed.append(message.sequence)
        assert consumed == list(range(MESSAGES))


@pytest.mark.usefixtures("hasty_threads")
@pytest.mark.parametrize("transport", ["memory", "zeromq", "zenoh"])
def test_threads_that_share_a_full_flow_get_their_time(transport: TransportName) -> None:
    """Room that another thread has taken is no reason to give up before the time is over."""
    endpoint, send_timeout = free_endpoint(), 1.0
    gave_up_after: list[float] = []
    with (
        twinlink.open(transport, listen=endpoint, retention=2**20, send_timeout=send_timeout) as link,
        twinlink.open(transport, connect=endpoint) as peer,
    ):
        peer.receiver("flow", handler=lambda message: None)
        link.wait_ready(patience())
        sender, stop_at = link.sender("flow"), time.monotonic() + 2.5

        def send() -> None:
            while time.monotonic() < stop_at:
                began = time.monotonic()
                try:
                    sender.send(bytes(300_000))
                except twinlink.SendTimeout:
                    gave_up_after.append(time.monotonic() - began)

        threads = [threading.Thread(target=send) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(patience())
            assert not thread.is_alive()
        sender.flush(patience())
        assert all(seconds > 0.8 * send_timeout for seconds in gave_up_after), gave_up_after
        assert sender.stats()["acknowledged"] == sender.stats()["sent"] > 0


def test_what_there_is_no_room_for_is_not_copied() -> None:
    endpoint = free_endpoint()
    with (
        twinlink.open("zeromq", listen=endpoint, retention=2**20) as link,
        twinlink.open("zeromq", connect=endpoint) as peer,
    ):
        peer.receiver("flow", handler=lambda message: None)
        link.wait_ready(patience())
        sender, payload = link.sender("flow"), bytes(900_000)
        vars(peer._transport)["receive"] = time.sleep  # from now on it reads nothing, so nothing is acknowledged
        for _ in range(9):
            sender.send(bytes(100_000))  # leaves whole: fragments of what waits would take memory meanwhile
        refused = bytearray(payload)  # of bytes there is no copy anyway
        tracemalloc.start()
        try:
            with pytest.raises(twinlink.SendTimeout):
                sender.send(refused)
            assert tracemalloc.get_traced_memory()[1] < len(payload) / 2
        finally:
            tracemalloc.stop()
            del vars(peer._transport)["receive"]
        sender.flush(patience())


@pytest.mark.parametrize("waits", ["receive", "flush"])
def test_handlers_that_wait_hold_up_nobody_else_and_take_no_more_memory_than_the_window(waits: str) -> None:
    """Each sends an answer that its peer does not take, and so waits until its send gives up."""
    window, octets, called = 2**20, 10_000, 0
    endpoint = free_endpoint()
    with (
        twinlink.open("memory", listen=endpoint, node="asks", window=window) as link,
        twinlink.open("memory", connect=endpoint, node="answers", window=window, retention=2**20) as peer,
    ):
        link.wait_ready(patience())
        peer.wait_ready(patience())
        link.receiver("answer")  # asked for, and not read
        answer = peer.sender("answer")

        def handle(_: twinlink.Message) -> None:
            nonlocal called
            called += 1
            answer.send(bytes(octets))

        peer.receiver("request", handler=handle)
        other, nothing, request = peer.sender("other"), peer.receiver("nothing"), link.sender("request")
        stopped = threading.Event()

        def ask() -> None:
            while not stopped.is_set():
                with contextlib.suppress(twinlink.SendTimeout):
                    request.send(bytes(octets))

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            wait_until(lambda: peer.stats()["handler_errors"] > 3)  # now they wait
            for _ in range(5):
                before = called
                if waits == "receive":
                    assert nothing.receive(0.1) is None
                else:
                    other.send(b"x")
                    with contextlib.suppress(twinlink.AckTimeout):
                        other.flush(0.1)
                assert called - before < 20  # of hundreds that wait, 50 ms each
                assert peer.stats()["received"]["request"]["queued_octets"] < 2 * window
        finally:
            stopped.set()
            asking.join()


@pytest.mark.parametrize("transport", ["memory", "zeromq", "zenoh"])
def test_acks_that_on_ack_has_not_been_called_with_fill_the_flow(transport: TransportName, endpoint: str) -> None:
    """A handler of the same link waits, while another thread sends: what it cannot be told of has a bound."""
    release, waits, acks = threading.Event(), threading.Event(), 0

    def on_ack(_: twinlink.Ack) -> None:
        nonlocal acks
        acks += 1

    with (
        twinlink.open(transport, listen=endpoint, node="sends", retention=2**20, send_timeout=2.0) as link,
        twinlink.open(transport, connect=endpoint, node="receives", retention=2**20) as peer,
    ):
        link.wait_ready(patience())
        peer.wait_ready(patience())
        peer.receiver("flow", handler=lambda _: None)
        nothing, sender = link.receiver("nothing"), link.sender("flow", on_ack=on_ack)

        def wait(_: twinlink.Message) -> None:
            waits.set()
            while not release.is_set():
                nothing.receive(0.05)

        link.receiver("trigger", handler=wait)
        peer.sender("trigger").send(b"")
        assert waits.wait(patience())
        try:
            with pytest.raises(twinlink.SendTimeout, match="on_ack takes longer"):
                collections.deque((sender.send(bytes(16)) for _ in range(4 * MAX_UNREPORTED_ACKS)), maxlen=0)
        finally:
            release.set()
        sent = sender.stats()["sent"]
        assert sent >= MAX_UNREPORTED_ACKS
        sender.flush(4 * patience())
        assert acks == sender.stats()["acknowledged"] == sent


@pytest.mark.parametrize("taken", [True, False])
def test_a_flow_at_rest_is_passed_over_until_something_is_sent(taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that no peer takes; each tick of a flow takes 10 us, and a link may have a thousand flows."""
    endpoint, ticks = free_endpoint(), collections.Counter[str]()
    with (
        twinlink.open("memory", listen=endpoint, node="dt") as dt,
        twinlink.open("memory", connect=endpoint, node="rw") as rw,
    ):
        rw.wait_ready(patience())
        if taken:
            dt.receiver("flow", handler=lambda message: None)
        sender = rw.sender("flow")
        sender.send(b"x")
        sender.flush(patience())
        flow = sender._flow
        original = flow.on_tick

        def counted(*arguments: Any) -> None:
            original(*arguments)
            ticks["at rest" if flow.rests else "awaits"] += 1

        monkeypatch.setattr(flow, "on_tick", counted)
        wait_until(lambda: ticks["at rest"] > 0)
        before = ticks.total()
        session = rw._driver.session
        for _ in range(2 * REST_TICKS):
            with rw._driver.lock:
                session.on_flow_tick(session.mono_ns, session.now_ns)
        assert ticks.total() - before <= 4
        before = ticks.total()
        sender.send(b"y")
        with rw._driver.lock:
            session.on_flow_tick(session.mono_ns, session.now_ns)
        assert ticks.total() > before
