"""Transports over TLS with identities: a rotation, and what doctor says of a handshake."""

from pathlib import Path

import pytest

from tests.identity.nodes import Opened, make, make_pair, needs_mosquitto, opener, rotation
from twinlink.cli.identity_checks import identity
from twinlink.testing import wait_until


@pytest.fixture(params=["zenoh", pytest.param("mqtt", marks=needs_mosquitto)])
def opened(request: pytest.FixtureRequest) -> Opened:
    return opener(request.param)


@pytest.mark.parametrize("rotates", ["listen", "connect"])
def test_rotation_loses_nothing(rotates: str, opened: Opened, endpoint: str, tmp_path: Path) -> None:
    with rotation(opened, rotates, endpoint, tmp_path) as rotated:
        of_rotating, of_peer = rotated.rotating.identity, rotated.peer.identity
        assert of_rotating is not None
        assert of_peer is not None
        wait_until(lambda: of_rotating.identity.line == rotated.line)
        rotated.goes_on()
        rotated.revoke_old()
        wait_until(lambda: [key.line for key in of_peer.valid] == [rotated.line])
        rotated.goes_on()


def test_doctor_does_a_handshake(opened: Opened, endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    stranger = make(tmp_path, "gnb-2", "gnb")
    stranger.trust(twin)
    with opened("listen", endpoint, twin):
        found = {row.check: row for row in identity(str(gnb.folder), endpoint)}["handshake"]
        assert (found.status, "twin-1 over TLS" in found.seen) == ("ok", True)
        refused = {row.check: row for row in identity(str(stranger.folder), endpoint)}["handshake"]
        assert (refused.status, "the listener refuses our certificate" in refused.seen) == ("fail", True)
