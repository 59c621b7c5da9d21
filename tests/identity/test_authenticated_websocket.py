"""WebSocket with identities: as over ZeroMQ, by certificates that are pinned."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import twinlink
from tests.identity.nodes import REFUSED_S, Node, make, make_pair, streaming
from tests.identity.test_authenticated_zeromq import CELLS, deliver
from twinlink.identity import trust
from twinlink.identity.certificates import self_signed
from twinlink.protocol.authentication import epoch_prefix
from twinlink.testing import patience, wait_until
from twinlink.testing.base import drain, wait_for_event
from twinlink.transports import Endpoint
from twinlink.transports.websocket import WebsocketTransport
from twinlink.transports.websocket_options import WebsocketOptions


def opened(role: str, endpoint: str, node: Node | None) -> twinlink.Link:
    folder = node.folder if node else None
    if role == "listen":
        return twinlink.open("websocket", listen=endpoint, identity=folder)
    return twinlink.open("websocket", connect=endpoint, identity=folder)


@pytest.mark.parametrize("name", [name for name in CELLS if "without" not in name])
def test_two_sides_do_not_meet_until_both_trust_each_other(name: str, endpoint: str, tmp_path: Path) -> None:
    cell = CELLS[name]
    at_listener, at_connector = cell.spoil(tmp_path, *make_pair(tmp_path))
    assert at_listener is not None
    assert at_connector is not None
    assert cell.repair is not None
    with opened("listen", endpoint, at_listener) as listener, opened("connect", endpoint, at_connector) as connector:
        for link in (connector, listener):
            link.sender("flow").send(b"secret")
        with pytest.raises(twinlink.AuthenticationError) as raised:
            connector.wait_ready(patience(REFUSED_S))
        assert cell.says in str(raised.value)
        if cell.refusal is not None:
            assert wait_for_event(listener, twinlink.Refused).reason == cell.refusal
        for link in (listener, connector):
            assert link.peers() == []
            assert link.stats()["received"] == {}
        cell.repair(at_listener, at_connector)
        wait_until(lambda: connector.peers() and listener.peers())
        deliver(connector, listener, "spectrum")
        deliver(listener, connector, "control")


@pytest.mark.parametrize(
    ("role", "says"),
    [
        ("connect", "takes only TLS: give this side an identity if the listener has one"),
        ("listen", "which has no identity: give it one there"),
    ],
)
def test_a_side_without_an_identity_is_named(role: str, says: str, endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    listens, connects = (None, gnb) if role == "listen" else (twin, None)
    with opened("listen", endpoint, listens) as listener, opened("connect", endpoint, connects) as connector:
        with pytest.raises(twinlink.AuthenticationError) as raised:
            connector.wait_ready(patience(REFUSED_S))
        assert says in str(raised.value)
        assert listener.peers() == connector.peers() == []
        if role == "connect":
            assert wait_for_event(listener, twinlink.Refused).reason == "mechanism"


def test_revoking_ends_the_session_and_only_that_one(endpoint: str, tmp_path: Path) -> None:
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
        refused = wait_for_event(listener, twinlink.Refused)
        assert (refused.identity, refused.reason) == ("gnb-2", "revoked")
        deliver(stays, listener, "spectrum")
        wait_until(lambda: not goes.peers())
        assert listener.peers() == ["gnb-1"]
        assert drain(stays, twinlink.PeerDown) == []


def test_expiry_ends_a_session(endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path, expires_in_s=patience(2))
    with opened("listen", endpoint, twin) as listener, opened("connect", endpoint, gnb) as connector:
        wait_until(lambda: listener.peers() and connector.peers())
        assert wait_for_event(listener, twinlink.PeerDown).reason == "untrusted"
        assert wait_for_event(connector, twinlink.PeerDown).reason == "untrusted"


@pytest.mark.parametrize("rotates", ["listen", "connect"])
def test_rotation_loses_nothing(rotates: str, endpoint: str, tmp_path: Path) -> None:
    """The session goes on over its connection until the old key is revoked, and then over a new one."""
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
            peer.revoke(rotating, old)
            seen = len(got)
            wait_until(lambda: len(got) > seen + 500)


def test_a_trusted_node_cannot_take_the_place_of_another(endpoint: str, tmp_path: Path) -> None:
    """A connection with the epoch of a session would end the one that it has."""
    twin, gnb = make_pair(tmp_path)
    spy = make(tmp_path, "spy", "observer")
    twin.trust(spy)
    spy.trust(twin)
    with opened("listen", endpoint, twin) as listener, opened("connect", endpoint, gnb) as connector:
        wait_until(lambda: listener.peers() and connector.peers())
        with opened("connect", endpoint, spy) as link:
            wait_until(link.peers)
            identity = link._transport.identity
            stranger = WebsocketTransport(Endpoint.parse(endpoint), False, 2**20, WebsocketOptions())
            stranger.identity, stranger.epoch = identity, connector.epoch
            stranger.open()
            assert wait_for_event(listener, twinlink.Refused).identity == "spy"
            stranger.close()
        deliver(connector, listener, "spectrum")
        assert drain(connector, twinlink.PeerDown) == []
        assert connector.epoch.to_bytes(8)[:4] == epoch_prefix("gnb-1")


def test_an_identity_has_its_certificates(endpoint: str, tmp_path: Path) -> None:
    twin, _ = make_pair(tmp_path)
    key, certificate = self_signed("twin-1", [], datetime.now(UTC) + timedelta(days=1))
    (tmp_path / "own.pem").write_bytes(certificate + key)
    with pytest.raises(twinlink.ConfigurationError, match="leave out tls, tls_certificate"):
        twinlink.open("websocket", listen=endpoint, identity=twin.folder, tls_certificate=str(tmp_path / "own.pem"))
