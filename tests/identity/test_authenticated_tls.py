"""Transports over TLS with identities: a rotation, and what doctor says of a handshake."""

from pathlib import Path

import pytest

from tests.identity.nodes import Opened, make, make_pair, needs_mosquitto, opener, streaming
from twinlink.cli.identity_checks import identity
from twinlink.identity import trust
from twinlink.testing import wait_until


@pytest.fixture(params=["zenoh", pytest.param("mqtt", marks=needs_mosquitto)])
def opened(request: pytest.FixtureRequest) -> Opened:
    return opener(request.param)


@pytest.mark.parametrize("rotates", ["listen", "connect"])
def test_rotation_loses_nothing(rotates: str, opened: Opened, endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    rotating, peer = (twin, gnb) if rotates == "listen" else (gnb, twin)
    old = rotating.identity.fingerprint
    with opened("listen", endpoint, twin) as listener, opened("connect", endpoint, gnb) as connector:
        wait_until(lambda: listener.peers() and connector.peers())
        with streaming(listener, connector) as got:
            line = trust.prepare_rotation(rotating.folder)
            trust.trust(peer.folder, line, line.role, beside=True)
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
