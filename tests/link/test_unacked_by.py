"""Who has not acknowledged: a session that fell silent, beside one that has everything, or one that was restarted."""

import logging
import subprocess
import sys

import pytest

import twinlink
from twinlink.protocol.send import flows
from twinlink.protocol.session import Reliability
from twinlink.testing import free_endpoint, patience, wait_until
from twinlink.transport_options import TransportName

_LISTENER = """
import sys, time, twinlink
link = twinlink.open("zeromq", listen=sys.argv[1], node=sys.argv[2])
link.receiver("d", handler=lambda message: None)
time.sleep(600)
"""

_CONNECTOR = _LISTENER.replace("listen=", "connect=")


def test_what_a_restarted_peer_did_not_get_is_lost_while_another_may_return() -> None:
    endpoint = free_endpoint()
    events: list[twinlink.Event] = []
    twins: list[subprocess.Popen[bytes]] = []

    def start(node: str) -> None:
        twins.append(subprocess.Popen([sys.executable, "-c", _CONNECTOR, endpoint, node]))

    with twinlink.open("zeromq", listen=endpoint) as link:
        link.events(handler=events.append)
        sender = link.sender("d")
        try:
            start("twin-1")
            start("twin-2")
            wait_until(lambda: len(link.peers()) == 2)
            for twin in twins:
                twin.kill()
                twin.wait()
            wait_until(lambda: not link.peers())
            sequence = sender.send(b"which either may come back for")
            start("twin-2")
            wait_until(lambda: any(isinstance(event, twinlink.Lost) for event in events))
        finally:
            for twin in twins:
                twin.kill()
                twin.wait()
        (lost,) = [event for event in events if isinstance(event, twinlink.Lost)]
        assert (lost.first, lost.end) == (sequence, sequence + 1)
        stats = sender.stats()
        assert (stats["lost"], stats["outstanding"]) == (1, 0)


def test_a_closed_link_names_who_still_owes_an_ack(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = free_endpoint()
    link = twinlink.open("zeromq", connect=endpoint)
    sender = link.sender("d")
    first = subprocess.Popen([sys.executable, "-c", _LISTENER, endpoint, "twin-1"])
    try:
        link.wait_ready(patience())
        sender.send(b"which it acknowledges")
        sender.flush(patience())
    finally:
        first.kill()
        first.wait()
    wait_until(lambda: not link.peers())
    second = subprocess.Popen([sys.executable, "-c", _LISTENER, endpoint, "twin-2"])
    try:
        link.wait_ready(patience())
        sender.send(b"which the first may come back for")
        with caplog.at_level(logging.WARNING, "twinlink"):
            link.close()
    finally:
        second.kill()
        second.wait()
    (told,) = [record.getMessage() for record in caplog.records if "not acknowledged" in record.getMessage()]
    assert "twin-1 (down, may return)" in told


def test_a_link_that_closes_tells_first_what_it_has_lost_in_however_many_ranges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_once = 20  # so few that handlers have the time for them, however busy the machine is
    monkeypatch.setattr(flows, "LOSSES_AT_ONCE", at_once)
    told: list[twinlink.Lost] = []
    ranges = 5 * at_once
    with twinlink.open("memory", listen=free_endpoint()) as link:
        link.events(handler=lambda event: told.append(event) if isinstance(event, twinlink.Lost) else None)
        sender = link.sender("d")
        with link._driver.lock:  # as a thread that loses something holds it
            for number in range(0, 2 * ranges, 2):
                sender._flow.losses.add(number, number + 1, "dropped")
    assert [event.first for event in told] == list(range(0, 2 * ranges, 2))


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
@pytest.mark.parametrize("reliability", ["repair", "detect"])
def test_a_flow_that_begins_while_a_peer_is_down_concerns_it_too(
    transport: TransportName, reliability: Reliability, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets what it missed when it returns, or knows what that was."""
    endpoint = free_endpoint()
    with (
        twinlink.open(transport, listen=endpoint, node="listener") as listener,
        twinlink.open(transport, connect=endpoint, node="staying") as staying,
        twinlink.open(transport, connect=endpoint, node="going") as going,
    ):
        wait_until(lambda: len(listener.peers()) == 2)
        missed: list[int] = []
        came: list[int] = []

        def note(event: twinlink.Event) -> None:
            if isinstance(event, twinlink.Gap):
                missed.extend(range(event.first, event.end))

        going.events(handler=note)
        going.receiver("flow", handler=lambda message: came.append(message.sequence))
        staying.receiver("flow", handler=lambda message: None)
        receive = going._transport.receive
        with monkeypatch.context() as cut_off:

            def take_nothing(timeout_s: float) -> None:
                receive(timeout_s)

            cut_off.setattr(going._transport, "receive", take_nothing)
            cut_off.setattr(going._transport, "send", lambda *_: None)
            wait_until(lambda: listener.peers() == ["staying"] and going.peers() == [])
            sender = listener.sender("flow", reliability=reliability)
            for _ in range(5):
                sender.send(b"")
            if reliability == "repair":
                with pytest.raises(twinlink.AckTimeout, match=r"going \(down, may return\)"):
                    sender.flush(0.2)
            else:
                sender.flush(patience())
        wait_until(lambda: len(listener.peers()) == 2 and going.peers())
        sender.send(b"")
        sender.flush(patience())
        # Of the missing ones the latest may have been on their way until then; a hello may tell later what was missed.
        wait_until(lambda: came[-1:] == [5] and missed + came == list(range(6)))
        assert missed == [] or reliability == "detect"
        assert sender.stats()["acknowledged"] == 6
