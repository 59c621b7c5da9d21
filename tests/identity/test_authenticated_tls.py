"""Transports over TLS with identities: which peers meet, and that what is repaired, rotated or revoked takes effect."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import twinlink
from tests.identity.nodes import Node, make, make_pair, streaming
from tests.identity.test_authenticated_zeromq import CELLS, deliver
from twinlink.cli.identity_checks import identity
from twinlink.identity import trust
from twinlink.testing import patience, wait_until
from twinlink.testing.base import wait_for_event
from twinlink.transports.mosquitto import SBIN

Opened = Callable[[str, str, Node | None], twinlink.Link]


needs_mosquitto = pytest.mark.skipif(
    shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:{SBIN}") is None, reason="mosquitto is not installed"
)


@pytest.fixture(params=["zenoh", pytest.param("mqtt", marks=needs_mosquitto)])
def opened(request: pytest.FixtureRequest) -> Opened:
    def open_link(role: str, endpoint: str, node: Node | None) -> twinlink.Link:
        folder = node.folder if node else None
        if role == "listen":
            return twinlink.open(request.param, listen=endpoint, identity=folder)
        return twinlink.open(request.param, connect=endpoint, identity=folder)

    return open_link


@pytest.mark.parametrize("name", CELLS)
def test_two_sides_do_not_meet_until_both_trust_each_other(
    name: str, opened: Opened, endpoint: str, tmp_path: Path
) -> None:
    cell = CELLS[name]
    at_listener, at_connector = cell.spoil(tmp_path, *make_pair(tmp_path))
    with opened("listen", endpoint, at_listener) as listener, opened("connect", endpoint, at_connector) as connector:
        up, down = connector.sender("up"), listener.sender("down")
        with pytest.raises(twinlink.AuthenticationError) as raised:
            connector.wait_ready(patience())  # long before this
        assert cell.says in str(raised.value)
        for sender in (up, down):
            sender.send(b"secret")
        for link in (listener, connector):
            assert link.peers() == []
            assert link.stats()["received"] == {}
        if cell.repair is None:
            return
        assert at_listener is not None
        assert at_connector is not None
        cell.repair(at_listener, at_connector)
        wait_until(lambda: connector.peers() and listener.peers())
        connector.wait_ready()
        deliver(connector, listener, "spectrum")
        deliver(listener, connector, "control")


def test_revoking_ends_the_session_and_only_that_one(opened: Opened, endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
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
        down = wait_for_event(listener, twinlink.PeerDown)
        assert (down.node, down.reason) == ("gnb-2", "untrusted")
        deliver(stays, listener, "spectrum")
        wait_until(lambda: not goes.peers())
        with pytest.raises(twinlink.AuthenticationError):
            goes.wait_ready(patience())
        wait_until(lambda: listener.peers() == ["gnb-1"])


def test_revoking_the_listener_ends_the_session(opened: Opened, endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    with opened("listen", endpoint, twin) as listener, opened("connect", endpoint, gnb) as connector:
        wait_until(lambda: listener.peers() and connector.peers())
        gnb.revoke(twin)
        assert wait_for_event(connector, twinlink.PeerDown).reason == "untrusted"
        with pytest.raises(twinlink.AuthenticationError):
            connector.wait_ready(patience())


def test_expiry_ends_a_session(opened: Opened, endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path, expires_in_s=patience(2))
    with opened("listen", endpoint, twin) as listener, opened("connect", endpoint, gnb) as connector:
        wait_until(lambda: listener.peers() and connector.peers())
        assert wait_for_event(listener, twinlink.PeerDown).reason == "untrusted"
        assert wait_for_event(connector, twinlink.PeerDown).reason == "untrusted"


@pytest.mark.parametrize("rotates", ["listen", "connect"])
def test_rotation_loses_nothing(rotates: str, opened: Opened, endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    rotating, peer = (twin, gnb) if rotates == "listen" else (gnb, twin)
    old = rotating.identity.fingerprint
    with opened("listen", endpoint, twin) as listener, opened("connect", endpoint, gnb) as connector:
        wait_until(lambda: listener.peers() and connector.peers())
        with streaming(listener, connector) as got:
            line = trust.prepare_rotation(rotating.folder)
            trust.trust(peer.folder, line, rotating.identity.role, beside=True)
            wait_until(lambda: len(got) > 100)
            trust.complete_rotation(rotating.folder)
            of_rotating, of_peer = (
                link.identity for link in ((listener, connector) if rotates == "listen" else (connector, listener))
            )
            assert of_rotating is not None
            assert of_peer is not None
            wait_until(lambda: of_rotating.identity.line == line)
            seen = len(got)
            wait_until(lambda: len(got) > seen + 100)
            peer.revoke(rotating, old)
            wait_until(lambda: [key.line for key in of_peer.valid] == [line])
            seen = len(got)
            wait_until(lambda: len(got) > seen + 100)


def test_doctor_does_a_handshake(opened: Opened, endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    stranger = make(tmp_path, "gnb-2", "gnb")
    stranger.trust(twin)
    with opened("listen", endpoint, twin):
        found = {row.check: row for row in identity(str(gnb.folder), endpoint)}["handshake"]
        assert (found.status, "twin-1 over TLS" in found.seen) == ("ok", True)
        refused = {row.check: row for row in identity(str(stranger.folder), endpoint)}["handshake"]
        assert (refused.status, "the listener refuses our certificate" in refused.seen) == ("fail", True)
