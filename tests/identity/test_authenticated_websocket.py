"""WebSocket and TCP with identities: as over ZeroMQ, by certificates that are pinned."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import twinlink
from tests.identity.nodes import REFUSED_S, deliver, make, make_pair, opener, rotation
from twinlink.identity.certificates import self_signed
from twinlink.protocol.authentication import epoch_prefix
from twinlink.testing import patience, wait_until
from twinlink.testing.base import drain, wait_for_event
from twinlink.transport_options import TransportName
from twinlink.transports import Endpoint, transport_class

opened = opener("websocket")


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


@pytest.mark.parametrize("rotates", ["listen", "connect"])
def test_rotation_loses_nothing(rotates: str, endpoint: str, tmp_path: Path) -> None:
    """The session goes on over its connection until the old key is revoked, and then over a new one."""
    with rotation(opened, rotates, endpoint, tmp_path) as rotated:
        rotated.revoke_old()
        rotated.goes_on(500)


@pytest.mark.parametrize("name", ["websocket", "tcp"])
def test_a_trusted_node_cannot_take_the_place_of_another(name: TransportName, endpoint: str, tmp_path: Path) -> None:
    """A connection with the epoch of a session would end the one that it has."""
    opened, kind = opener(name), transport_class(name)
    twin, gnb = make_pair(tmp_path)
    spy = make(tmp_path, "spy", "observer")
    twin.trust(spy)
    spy.trust(twin)
    with opened("listen", endpoint, twin) as listener, opened("connect", endpoint, gnb) as connector:
        wait_until(lambda: listener.peers() and connector.peers())
        with opened("connect", endpoint, spy) as link:
            wait_until(link.peers)
            identity = link._transport.identity
            stranger = kind(Endpoint.parse(endpoint), False, 2**20, kind.options_class())
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
