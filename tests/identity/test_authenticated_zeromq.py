"""ZeroMQ with identities: which sides meet, what a refusal says, and that they meet once it is repaired."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import twinlink
from tests.identity.nodes import REFUSED_S, Node, make, make_pair, streaming
from twinlink.identity import trust
from twinlink.testing import patience, wait_until
from twinlink.testing.base import drain, wait_for_event
from twinlink.transports.zeromq_guard import ZeromqGuard


def opened(role: str, endpoint: str, node: Node | None) -> twinlink.Link:
    folder = node.folder if node else None
    if role == "listen":
        return twinlink.open("zeromq", listen=endpoint, identity=folder)
    return twinlink.open("zeromq", connect=endpoint, identity=folder)


def deliver(sending: twinlink.Link, receiving: twinlink.Link, flow: str) -> None:
    receiver, sender = receiving.receiver(flow), sending.sender(flow)
    sender.send(b"payload")
    sender.flush(patience())
    message = receiver.receive(timeout=patience())
    assert message is not None
    assert message.payload == b"payload"


def renew(node: Node) -> None:
    trust.prepare_rotation(node.folder)
    trust.complete_rotation(node.folder)


@dataclass(frozen=True)
class Cell:
    """One reason why two sides do not meet.

    Attributes:
        spoil: brings it about; returns the identities with which the two sides are opened.
        repair: ends it, without opening a link anew.  None: only another identity would.
        says: part of the connector's error.
        refusal: the reason of the listener's event `Refused`, if it has one.
    """

    spoil: Callable[[Path, Node, Node], tuple[Node | None, Node | None]]
    repair: Callable[[Node, Node], None] | None
    says: str
    refusal: str | None = None


def _unknown_at_listener(folder: Path, twin: Node, gnb: Node) -> tuple[Node, Node]:
    (twin.folder / "trusted").unlink()
    return twin, gnb


def _unknown_at_connector(folder: Path, twin: Node, gnb: Node) -> tuple[Node, Node]:
    (gnb.folder / "trusted").unlink()
    gnb.trust(make(folder, "twin-2", "twin"))
    return twin, gnb


def _none_at_connector(folder: Path, twin: Node, gnb: Node) -> tuple[Node, Node]:
    (gnb.folder / "trusted").unlink()
    return twin, gnb


def _revoked_at_listener(folder: Path, twin: Node, gnb: Node) -> tuple[Node, Node]:
    twin.revoke(gnb)
    return twin, gnb


def _revoked_at_connector(folder: Path, twin: Node, gnb: Node) -> tuple[Node, Node]:
    gnb.revoke(twin)
    return twin, gnb


def _expired(folder: Path, twin: Node, gnb: Node, of: str) -> tuple[Node, Node]:
    made = make(folder / "expired", *("gnb-3", "gnb") if of == "gnb" else ("twin-3", "twin"), expires_in_s=-1)
    other = twin if of == "gnb" else gnb
    made.trust(other)
    with (other.folder / "trusted").open("a") as trusted:  # `trust` refuses it
        trusted.write(f"{of} {made.identity.line}\n")
    if of == "twin":  # it is the only one that the connector trusts
        (gnb.folder / "trusted").write_text(f"{of} {made.identity.line}\n")
    made.trust(other)
    return (twin, made) if of == "gnb" else (made, gnb)


def _renew_and_trust(of: Node, at: Node) -> None:
    renew(of)
    at.trust(of, beside=True)


CELLS = {
    "key unknown at the listener": Cell(
        _unknown_at_listener, lambda twin, gnb: twin.trust(gnb), "key trust LINE --as gnb-1 --role gnb", "unknown"
    ),
    "key unknown at the connector": Cell(
        _unknown_at_connector, lambda twin, gnb: gnb.trust(twin), "has another key than those trusted here (of twin-2)"
    ),
    "none trusted at the connector": Cell(
        _none_at_connector, lambda twin, gnb: gnb.trust(twin), "no key of a peer is trusted in"
    ),
    "revoked at the listener": Cell(
        _revoked_at_listener, lambda twin, gnb: _renew_and_trust(gnb, twin), "run `twinlink key rotate", "revoked"
    ),
    "revoked at the connector": Cell(_revoked_at_connector, _renew_and_trust, "no key of a peer is trusted in"),
    "connector expired": Cell(
        lambda folder, twin, gnb: _expired(folder, twin, gnb, "gnb"),
        lambda twin, gnb: _renew_and_trust(gnb, twin),
        "run `twinlink key rotate",
        "expired",
    ),
    "listener expired": Cell(
        lambda folder, twin, gnb: _expired(folder, twin, gnb, "twin"),
        _renew_and_trust,
        "no key of a peer is trusted in",
    ),
    "connector without an identity": Cell(
        lambda folder, twin, gnb: (twin, None), None, "takes only nodes with an identity"
    ),
    "listener without an identity": Cell(
        lambda folder, twin, gnb: (None, gnb), None, "this side refuses the listener at 127.0.0.1"
    ),
}


@pytest.mark.parametrize("name", CELLS)
def test_two_sides_do_not_meet_until_both_trust_each_other(name: str, endpoint: str, tmp_path: Path) -> None:
    cell = CELLS[name]
    at_listener, at_connector = cell.spoil(tmp_path, *make_pair(tmp_path))
    with opened("listen", endpoint, at_listener) as listener, opened("connect", endpoint, at_connector) as connector:
        up, down = connector.sender("up"), listener.sender("down")
        with pytest.raises(twinlink.AuthenticationError) as raised:
            connector.wait_ready(patience(REFUSED_S))
        assert cell.says in str(raised.value)
        if cell.refusal is not None:
            event = wait_for_event(listener, twinlink.Refused)
            assert event.reason == cell.refusal
            assert event.address == "127.0.0.1"
        for sender in (up, down):
            sender.send(b"secret")
        for link in (listener, connector):
            assert link.peers() == []
            assert link.stats()["received"] == {}
            assert link.stats()["malformed"] == {}
        if cell.repair is None:
            return
        assert at_listener is not None
        assert at_connector is not None
        cell.repair(at_listener, at_connector)
        wait_until(lambda: connector.peers() and listener.peers())
        connector.wait_ready()
        deliver(connector, listener, "spectrum")
        deliver(listener, connector, "control")


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
        wait_until(lambda: not connector.peers())
        refused = pytest.raises(twinlink.AuthenticationError, match="has another key than those trusted here")
        with opened("listen", endpoint, stranger), refused:
            connector.wait_ready(patience(REFUSED_S))


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
        assert [event for event in drain(listener, twinlink.PeerDown) if event.reason == "untrusted"] == []


def test_revoking_the_listener_ends_the_session(endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    with opened("listen", endpoint, twin) as listener, opened("connect", endpoint, gnb) as connector:
        wait_until(lambda: listener.peers() and connector.peers())
        gnb.revoke(twin)
        assert wait_for_event(connector, twinlink.PeerDown).reason == "untrusted"
        with pytest.raises(twinlink.AuthenticationError):
            connector.wait_ready(patience())


def test_expiry_ends_a_session(endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path, expires_in_s=patience(3))
    with opened("listen", endpoint, twin) as listener, opened("connect", endpoint, gnb) as connector:
        wait_until(lambda: listener.peers() and connector.peers())
        assert wait_for_event(listener, twinlink.PeerDown).reason == "untrusted"
        assert wait_for_event(connector, twinlink.PeerDown).reason == "untrusted"


@pytest.mark.parametrize("rotates", ["listen", "connect"])
def test_rotation_loses_nothing(rotates: str, endpoint: str, tmp_path: Path) -> None:
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
            of_listener, of_connector = listener._transport, connector._transport
            if rotates == "connect":  # the new key is in use: a message has come with it
                new = gnb.identity.curve_public.decode()
                wait_until(lambda: new in of_listener._guard._keys.values())  # type: ignore[attr-defined]
            else:
                new_peer = twin.identity.curve_public
                wait_until(lambda: of_connector._curve.pinned.curve_public == new_peer)  # type: ignore[attr-defined]
            peer.revoke(rotating, old)
            seen = len(got)
            wait_until(lambda: len(got) > seen + 100)


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


def test_a_listener_that_any_program_may_join_says_so_once(endpoint: str, caplog: pytest.LogCaptureFixture) -> None:
    with twinlink.open("zeromq", listen=endpoint):
        assert caplog.text == ""
    with twinlink.open("zeromq", listen=endpoint.replace("127.0.0.1", "0.0.0.0")):
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "without an identity: any program that reaches this port may join" in caplog.text


def test_a_listener_with_an_identity_does_not_say_so(
    endpoint: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    twin, _ = make_pair(tmp_path)
    with opened("listen", endpoint.replace("127.0.0.1", "0.0.0.0"), twin):
        assert caplog.text == ""
