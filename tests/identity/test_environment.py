"""The variable TWINLINK_IDENTITY in a program of one's own."""

from pathlib import Path

import pytest

import twinlink
from tests.identity.nodes import make_pair
from twinlink.testing import wait_until


def test_a_link_has_the_identity_of_the_environment(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin, gnb = make_pair(tmp_path)
    monkeypatch.setenv("TWINLINK_IDENTITY", str(twin.folder))
    with (
        twinlink.open("zeromq", listen=endpoint) as listener,
        twinlink.open("zeromq", connect=endpoint, identity=gnb.folder) as connector,
    ):
        wait_until(lambda: listener.peers() == ["gnb-1"] and connector.peers() == ["twin-1"])
    with twinlink.open("zeromq", connect=endpoint, identity="") as plain:
        assert plain.identity is None
    with pytest.raises(twinlink.ConfigurationError, match="identity='' opens a link without it"):
        twinlink.open("memory", listen=endpoint, identity=twin.folder)
    with twinlink.open("memory", listen=endpoint) as within:
        assert within.identity is None


def test_an_identity_that_cannot_be_read_is_not_passed_over(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWINLINK_IDENTITY", str(tmp_path / "none"))
    with pytest.raises(twinlink.ConfigurationError, match="twinlink key new"):
        twinlink.open("zeromq", listen=endpoint)
    monkeypatch.setenv("TWINLINK_IDENTITY", "")
    monkeypatch.setenv("TWINLINK_REQUIRE_IDENTITY", "true")
    with pytest.raises(twinlink.ConfigurationError, match="as TWINLINK_REQUIRE_IDENTITY says"):
        twinlink.open("zeromq", listen=endpoint)
