"""A thread of twinlink that raises goes on, and the exception is counted, an event, and a reason of ``/readyz``."""

import logging
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import twinlink
from twinlink.process import internal_errors, resolver
from twinlink.process.guarded_thread import GuardedThread
from twinlink.process.internal_errors import InternalErrors
from twinlink.runtime.heartbeat_thread import HeartbeatThread
from twinlink.runtime.receive_loop import ReceiveLoop
from twinlink.runtime.transmit_thread import TransmitThread
from twinlink.testing import free_endpoint, patience, wait_until
from twinlink.testing.base import drain
from twinlink.transport_options import TransportName
from twinlink.transports.connection_guard import SubscriberGuard
from twinlink.transports.mqtt import MqttTransport
from twinlink.transports.stream_dialer import Dialer
from twinlink.transports.zenoh_inbox import ZenohInbox
from twinlink.transports.zeromq_guard import ZeromqGuard

THREADS: list[tuple[TransportName, type, str, str]] = [
    ("memory", ReceiveLoop, "run_once", "twinlink-dt"),
    ("memory", HeartbeatThread, "_wait", "twinlink-dt-heartbeat"),
    ("memory", TransmitThread, "_transmit", "twinlink-dt-transmit"),
    ("zeromq", SubscriberGuard, "check", "twinlink-zeromq-guard"),
    ("zeromq", ZeromqGuard, "_decide", "twinlink-zeromq-guard"),
    ("zenoh", ZenohInbox, "tick", "twinlink-zenoh-tick"),
    ("websocket", Dialer, "_attempt", "twinlink-dial"),
    ("mqtt", MqttTransport, "_connect_once", "twinlink-mqtt-connect"),
]


class Failing:
    """A method that raises at its first calls in a GuardedThread, and then does as before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, times: int = 2) -> None:
        self.left = times
        method: Callable[..., Any] = getattr(owner, name)

        def fail(*arguments: Any) -> Any:
            if self.left and isinstance(threading.current_thread(), GuardedThread):
                self.left -= 1
                raise ZeroDivisionError(f"in {name}")
            return method(*arguments)

        monkeypatch.setattr(owner, name, fail)


@pytest.mark.usefixtures("may_raise")
@pytest.mark.parametrize(("transport", "owner", "name", "thread"), THREADS)
def test_a_thread_of_a_link_that_raises_goes_on_and_is_an_event(
    transport: TransportName, owner: type, name: str, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = free_endpoint()
    failing = Failing(monkeypatch, owner, name)
    with (
        twinlink.open(transport, listen=endpoint, node="dt") as twin,
        twinlink.open(transport, connect=endpoint, node="rw") as gnb,
    ):
        gnb.wait_ready(patience())
        inbox = twin.receiver("f")
        gnb.sender("f").send(b"one")
        wait_until(lambda: not failing.left)
        assert (message := inbox.receive(patience())) is not None
        assert bytes(message.payload) == b"one"
        errors: list[twinlink.InternalError] = []
        wait_until(lambda: any(_take(link, errors) for link in (twin, gnb)))
        assert sum(link.stats()["internal_errors"] for link in (twin, gnb)) >= 2
        assert {one.error for one in errors} == {repr(ZeroDivisionError(f"in {name}"))}
        assert any(thread.replace("dt", node) in one.where for one in errors for node in ("dt", "rw"))
        assert any("ZeroDivisionError" in reason for reason in internal_errors.recent())


def _take(link: twinlink.Link, errors: list[twinlink.InternalError]) -> bool:
    """Add those that have come; whether there are any by now."""
    errors += drain(link, twinlink.InternalError)
    return bool(errors)


@pytest.mark.usefixtures("may_raise")
def test_a_flood_of_exceptions_is_counted_and_reported_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    errors = InternalErrors()
    with caplog.at_level(logging.ERROR, "twinlink"):
        for _ in range(10_000):
            errors.add("thread x", ValueError("y" * 10_000), "it goes on")
    assert errors.count == 10_000
    assert 1 <= len(errors.since(0)) == len(caplog.records) < 100
    assert len(errors.since(0)[0].error) <= internal_errors.MAX_TEXT
    assert errors.since(errors.count) == []


@pytest.mark.usefixtures("may_raise")
def test_an_exception_of_no_link_is_an_event_of_every_link() -> None:
    with twinlink.open("memory", listen="tcp/127.0.0.1:7447") as link:
        GuardedThread(partial(sys.exit, 3), "one that exits").start()
        found: list[twinlink.InternalError] = []
        wait_until(lambda: _take(link, found))
        assert (found[0].where, found[0].error) == ("thread one that exits", "SystemExit(3)")
        assert link.stats()["internal_errors"] >= 1


def test_the_lookup_of_a_name_that_raises_gives_its_reason(monkeypatch: pytest.MonkeyPatch, may_raise: None) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("no such database")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(OSError, match="no such database"):
        resolver.addresses("host.example", patience())


@pytest.mark.usefixtures("may_raise")
def test_a_link_that_meets_no_peer_for_an_exception_of_its_own_says_so(
    monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    Failing(monkeypatch, Dialer, "_attempt", times=1_000_000)
    with (
        twinlink.open("websocket", connect=endpoint) as link,
        pytest.raises(twinlink.PeerTimeout, match=r"twinlink-dial of this side raised ZeroDivisionError.*the log"),
    ):
        link.wait_ready(0.5)
