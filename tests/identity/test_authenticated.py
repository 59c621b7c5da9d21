"""Every transport with identities: which peers meet, and that what is repaired, revoked or expires takes effect."""

from pathlib import Path
from typing import Any

import pytest

import twinlink
from tests.identity.cells import CELLS
from tests.identity.nodes import REFUSED_S, deliver, make, make_pair, needs_mosquitto, opener
from twinlink.runtime import no_peer
from twinlink.testing import patience, wait_until
from twinlink.testing.base import drain, wait_for_event
from twinlink.transport_options import TransportName

REPORT_REFUSED = {"zeromq", "websocket", "tcp", "mqtt"}
TELL_REASONS = {"zeromq", "websocket", "tcp"}  # mosquitto logs only that a certificate is not trusted
OWN_TEXTS = {"websocket", "tcp"}  # in test_authenticated_websocket.py
TRANSPORTS = ["zeromq", "websocket", "tcp", "zenoh", pytest.param("mqtt", marks=needs_mosquitto)]

of_each = pytest.mark.parametrize("transport", TRANSPORTS)


@pytest.fixture
def nothing_is_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that stands when `wait_ready` is called counts at once."""
    monkeypatch.setattr(no_peer, "REPAIR_S", 0.0)


@of_each
@pytest.mark.parametrize("name", CELLS)
def test_two_sides_do_not_meet_until_both_trust_each_other(
    name: str, transport: TransportName, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(no_peer, "REPAIR_S", patience())  # for a busy machine
    cell, opened = CELLS[name], opener(transport)
    at_listener, at_connector = cell.spoil(tmp_path, *make_pair(tmp_path))
    with opened("listen", endpoint, at_listener) as listener, opened("connect", endpoint, at_connector) as connector:
        up, down = connector.sender("up"), listener.sender("down")
        with pytest.raises(twinlink.AuthenticationError) as raised:
            connector.wait_ready(patience(REFUSED_S))
        if cell.repair is not None or transport not in OWN_TEXTS:
            assert cell.says in str(raised.value)
        if cell.refusal is not None and transport in REPORT_REFUSED:
            event = wait_for_event(listener, twinlink.Refused)
            assert event.reason == (cell.refusal if transport in TELL_REASONS else "unknown")
            assert event.address.partition(":")[0] == "127.0.0.1"
            if transport == "zeromq" and cell.refusal == "unknown" and at_connector is not None:
                assert event.identity.startswith("SHA256:")
                assert event.identity in str(raised.value)
        for sender in (up, down):
            sender.send(b"secret")
        for link in (listener, connector):
            assert link.peers() == []
            assert link.stats()["received"] == {}
            if transport == "zeromq":
                assert link.stats()["malformed"] == {}  # a refused key is no foreign protocol
        if cell.repair is None:
            return
        assert at_listener is not None
        assert at_connector is not None
        cell.repair(at_listener, at_connector)
        connector.wait_ready(patience())  # at once: what it said before does not count
        listener.wait_ready(patience())
        deliver(connector, listener, "spectrum")
        deliver(listener, connector, "control")


@of_each
@pytest.mark.usefixtures("nothing_is_repaired")
def test_revoking_ends_the_session_and_only_that_one(transport: TransportName, endpoint: str, tmp_path: Path) -> None:
    opened, (twin, gnb) = opener(transport), make_pair(tmp_path)
    other = make(tmp_path, "gnb-2", "gnb")
    twin.trust(other)
    other.trust(twin)
    with (
        opened("listen", endpoint, twin) as listener,
        opened("connect", endpoint, gnb) as stays,
        opened("connect", endpoint, other) as goes,
    ):
        wait_until(lambda: len(listener.peers()) == 2 and stays.peers() and goes.peers())
        twin.revoke(other)
        events: dict[type[twinlink.Event], Any] = {}  # the last of each kind: their order is the transport's

        def reported(kind: type[twinlink.Event]) -> bool:
            events.update({type(event): event for event in drain(listener)})
            return kind in events

        wait_until(lambda: reported(twinlink.PeerDown))
        down = events[twinlink.PeerDown]
        assert (down.node, down.reason) == ("gnb-2", "untrusted")
        if transport in {*REPORT_REFUSED, "zenoh"}:  # which knows the names of connections that are up
            wait_until(lambda: reported(twinlink.Refused))
            refused = events[twinlink.Refused]
            told = ("gnb-2", "revoked") if transport in {*TELL_REASONS, "zenoh"} else ("", "unknown")
            assert (refused.identity, refused.reason) == told
        deliver(stays, listener, "spectrum")
        wait_until(lambda: not goes.peers())
        with pytest.raises(twinlink.AuthenticationError):
            goes.wait_ready(patience())
        wait_until(lambda: listener.peers() == ["gnb-1"])
        assert [event for event in drain(listener, twinlink.PeerDown) if event.reason == "untrusted"] == []


@of_each
@pytest.mark.usefixtures("nothing_is_repaired")
def test_revoking_the_listener_ends_the_session(transport: TransportName, endpoint: str, tmp_path: Path) -> None:
    opened, (twin, gnb) = opener(transport), make_pair(tmp_path)
    with opened("listen", endpoint, twin) as listener, opened("connect", endpoint, gnb) as connector:
        wait_until(lambda: listener.peers() and connector.peers())
        gnb.revoke(twin)
        assert wait_for_event(connector, twinlink.PeerDown).reason == "untrusted"
        with pytest.raises(twinlink.AuthenticationError):
            connector.wait_ready(patience())


@of_each
def test_expiry_ends_a_session(transport: TransportName, endpoint: str, tmp_path: Path) -> None:
    opened, (twin, gnb) = opener(transport), make_pair(tmp_path, expires_in_s=patience(3))
    with opened("listen", endpoint, twin) as listener, opened("connect", endpoint, gnb) as connector:
        wait_until(lambda: listener.peers() and connector.peers())
        assert wait_for_event(listener, twinlink.PeerDown).reason == "untrusted"
        assert wait_for_event(connector, twinlink.PeerDown).reason == "untrusted"
