"""ZeroMQ with identities: which sides meet, what a refusal says, and that they meet once it is repaired."""

from pathlib import Path

import pytest

import twinlink
from tests.identity.nodes import REFUSED_S, deliver, make, make_pair, opener, rotation
from twinlink.testing import patience, wait_until
from twinlink.testing.base import drain, wait_for_event
from twinlink.transports.zeromq_guard import ZeromqGuard

opened = opener("zeromq")


def test_two_nodes_that_trust_each_other_meet(endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    with opened("listen", endpoint, twin) as listener, opened("connect", endpoint, gnb) as connector:
        connector.wait_ready(patience())
        listener.wait_ready(patience())
        assert (listener.peers(), connector.peers()) == (["gnb-1"], ["twin-1"])
        deliver(connector, listener, "spectrum")
        deliver(listener, connector, "control")
        assert listener.stats()["identity"] == {"refused_connections": 0, "refused_frames": {}}


def test_a_connector_finds_the_listener_among_many_that_it_trusts(endpoint: str, tmp_path: Path) -> None:
    """CURVE tells a connector nothing of the listener's key: it tries each that it trusts."""
    twin, gnb = make_pair(tmp_path)
    for number in range(12):
        gnb.trust(make(tmp_path, f"other-{number}", "twin"))
    stranger = make(tmp_path, "stranger", "twin")
    stranger.trust(gnb)
    with opened("connect", endpoint, gnb) as connector:
        with opened("listen", endpoint, twin) as listener:
            wait_until(lambda: connector.peers() and listener.peers())
            assert drain(listener, twinlink.Refused) == []  # to try a key is no reason for a report
        wait_until(lambda: not connector.peers())
        refused = pytest.raises(twinlink.AuthenticationError, match="has another key than those trusted here")
        with opened("listen", endpoint, stranger) as listener:
            with refused:
                connector.wait_ready(patience(REFUSED_S))
            assert wait_for_event(listener, twinlink.Refused).reason == "key"


@pytest.mark.parametrize("rotates", ["listen", "connect"])
def test_rotation_loses_nothing(rotates: str, endpoint: str, tmp_path: Path) -> None:
    with rotation(opened, rotates, endpoint, tmp_path) as rotated:
        new, of_peer = rotated.line.curve_public, rotated.peer._transport
        if rotates == "connect":  # the new key is in use: a message has come with it
            wait_until(lambda: new.decode() in of_peer._guard._keys.values())  # type: ignore[attr-defined]
        else:
            wait_until(lambda: of_peer._curve.pinned.curve_public == new)  # type: ignore[attr-defined]
        rotated.revoke_old()
        rotated.goes_on()


def test_without_the_thread_that_decides_none_is_admitted(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin, gnb = make_pair(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(ZeromqGuard, "_run", lambda _: None)
        listener = opened("listen", endpoint, twin)
    with listener, opened("connect", endpoint, gnb) as connector:
        with pytest.raises(twinlink.PeerTimeout):
            connector.wait_ready(1.5)
        assert listener.peers() == []


def test_a_listener_says_what_it_has_refused(endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    twin.revoke(gnb)
    with opened("listen", endpoint, twin) as listener, opened("connect", endpoint, gnb):
        wait_until(lambda: listener._transport.refusals.count)
        with pytest.raises(twinlink.AuthenticationError, match=r"refused gnb-1 from 127\.0\.0\.1: its key was"):
            listener.wait_ready(0.01)


def test_a_node_has_the_name_of_its_identity(endpoint: str, tmp_path: Path) -> None:
    twin, _ = make_pair(tmp_path)
    with pytest.raises(twinlink.ConfigurationError, match="is the identity of twin-1"):
        twinlink.open("zeromq", listen=endpoint, identity=twin.folder, node="gnb-1")
    with pytest.raises(twinlink.ConfigurationError, match="cannot authenticate its peers"):
        twinlink.open("memory", listen=endpoint, identity=twin.folder)


def test_a_listener_that_any_program_may_join_says_so_once(
    endpoint: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlink.options._warned_hosts", set())
    with twinlink.open("zeromq", listen=endpoint):
        assert caplog.text == ""
    for _ in range(2):  # as of a notebook's cell that runs again
        with twinlink.open("zeromq", listen=endpoint.replace("127.0.0.1", "0.0.0.0")):
            pass
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "without an identity: any program that reaches this port may join" in caplog.text


def test_a_listener_with_an_identity_does_not_say_so(
    endpoint: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    twin, _ = make_pair(tmp_path)
    with opened("listen", endpoint.replace("127.0.0.1", "0.0.0.0"), twin):
        assert caplog.text == ""
