"""Zenoh through a router with identities: who may connect, and what a node may do there."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import twinlink
from tests.identity.nodes import REFUSED_S, Node, deliver, make, streaming
from tests.identity.sites import GRANTED, NAMESPACE, OTHER, Site, running
from tests.identity.test_authenticated_zenoh import Spy, issued_by, refused_frames
from tests.link.routers import routers
from twinlink.identity import trust
from twinlink.protocol.frames import Kind
from twinlink.testing import patience, wait_until
from twinlink.testing.base import wait_for_event


@pytest.mark.parametrize("borrows", [False, True], ids=["own certificate", "certificate in another name"])
def test_a_router_holds_names_and_namespaces_apart(borrows: bool, tmp_path: Path) -> None:
    site, spying = Site(tmp_path), make(tmp_path, "spy-1", "observer")
    for node in (site.router, site.gnb):
        node.trust(spying)
    spying.trust(site.router)
    with (
        running(site, {NAMESPACE: ("gnb-1", "twin-1"), OTHER: ("spy-1",)}),
        site.open(site.twin) as twin,
        site.open(site.gnb) as gnb,
    ):
        wait_until(lambda: twin.peers() and gnb.peers())
        got: list[twinlink.Message] = []
        for link in (twin, gnb):
            link.receiver("control", handler=got.append)
        spy = Spy(site.endpoint, spying, issued_by(spying, "twin-1", tmp_path) if borrows else None, "client")
        try:
            for name in ("gnb-1", "twin-1", "spy-1"):
                spy.put(f"{NAMESPACE}/{name}", "traffic/control", name, Kind.DATA, b"forged")
                spy.put(f"{NAMESPACE}/{name}", "traffic/_link", name, Kind.BYE, b"")
            deliver(gnb, twin, "telemetry")
            deliver(twin, gnb, "answer")
            assert got == []
            assert refused_frames(twin) == refused_frames(gnb) == {}
            assert spy.heard == []
            assert (twin.peers(), gnb.peers()) == (["gnb-1"], ["twin-1"])
        finally:
            spy.session.close()  # type: ignore[no-untyped-call]


def _no_grant(site: Site) -> Callable[[], None]:
    trust.revoke(site.router.folder, "gnb-1")
    site.start({NAMESPACE: ("twin-1",)})

    def repair() -> None:
        trust.trust(site.router.folder, trust.prepare_rotation(site.gnb.folder), "gnb")
        site.start()
        trust.complete_rotation(site.gnb.folder)
        site.twin.trust(site.gnb, beside=True)

    return repair


def _other_router(site: Site) -> Callable[[], None]:
    trust.revoke(site.gnb.folder, "router-1")
    site.gnb.trust(make(site.router.folder.parent, "router-2", "router"))

    def repair() -> None:
        line = trust.prepare_rotation(site.router.folder)
        for node in (site.gnb, site.twin):
            trust.trust(node.folder, line, "router", beside=True)
        trust.complete_rotation(site.router.folder)
        site.start()

    return repair


def _no_router(site: Site) -> Callable[[], None]:
    (site.gnb.folder / "trusted").unlink()
    return lambda: (site.gnb.trust(site.router), site.gnb.trust(site.twin))[0]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_no_grant, "refuses the key of this side, gnb-1"),
        (_other_router, r"has another key than those trusted here \(of router-2\)"),
        (_no_router, "no key of a router is trusted in"),
    ],
)
def test_a_node_and_a_router_meet_once_each_trusts_the_other(
    spoil: Callable[[Site], Callable[[], None]], says: str, tmp_path: Path
) -> None:
    site = Site(tmp_path)
    with running(site):
        repair = spoil(site)
        with site.open(site.gnb) as gnb, site.open(site.twin) as twin:
            with pytest.raises(twinlink.AuthenticationError, match=says):
                gnb.wait_ready(patience(REFUSED_S))
            assert gnb.stats()["received"] == twin.stats()["received"] == {}
            repair()
            wait_until(lambda: gnb.peers() and twin.peers())
            gnb.wait_ready()
            deliver(gnb, twin, "spectrum")


def test_there_is_no_fallback_to_plain(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with running(site), site.open(None) as plain:
        with pytest.raises(twinlink.AuthenticationError, match="the router at .* takes only nodes with an identity"):
            plain.wait_ready(patience(REFUSED_S))
    with routers(1) as (router,):
        site.endpoint = router.endpoint
        with site.open(site.gnb) as gnb, pytest.raises(twinlink.AuthenticationError, match="`twinlink key router`"):
            gnb.wait_ready(patience(REFUSED_S))


@pytest.mark.parametrize("of", ["twin", "router"])
def test_rotation_through_a_router_loses_nothing(of: str, tmp_path: Path) -> None:
    site = Site(tmp_path)
    with running(site), site.open(site.gnb) as gnb, site.open(site.twin) as twin:
        wait_until(lambda: gnb.peers() and twin.peers())
        rotating: Node = getattr(site, of)
        others = [node for node in (site.router, site.gnb, site.twin) if node is not rotating]
        old, role = rotating.identity.fingerprint, rotating.identity.role
        with streaming(twin, gnb) as got:
            line = trust.prepare_rotation(rotating.folder)
            for other in others:
                trust.trust(other.folder, line, role, beside=True)
            if of == "router":
                trust.complete_rotation(rotating.folder)
            site.start()
            if of != "router":
                trust.complete_rotation(rotating.folder)
            seen = len(got)
            wait_until(lambda: len(got) > seen + 100)
            for other in others:
                other.revoke(rotating, old)
            site.start()
            seen = len(got)
            wait_until(lambda: len(got) > seen + 100)


def test_a_peer_that_revokes_needs_no_router_for_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with running(site), site.open(site.gnb) as gnb, site.open(site.twin) as twin:
        wait_until(lambda: gnb.peers() and twin.peers())
        ending, sender = threading.Event(), gnb.sender("spectrum")
        inbox = twin.receiver("spectrum")
        site.twin.revoke(site.gnb)
        assert wait_for_event(twin, twinlink.PeerDown).reason == "untrusted"
        while inbox.receive(timeout=0) is not None:
            pass
        sender.send(b"of a revoked key")
        wait_until(lambda: refused_frames(twin).get("hello") or refused_frames(twin).get("data"))
        assert inbox.receive(timeout=0) is None
        assert twin.peers() == []
        ending.set()


def test_a_configuration_names_nodes_that_the_router_trusts(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for granted, says in (
        ({NAMESPACE: ("gnb-1", "gnb-7")}, "no valid key of gnb-7 is trusted in"),
        ({"twinlink/*": ("gnb-1",)}, "1 to 8 names joined by slashes"),
    ):
        with pytest.raises(twinlink.ConfigurationError, match=says):
            site.configure(granted)
    site.router = site.gnb
    with pytest.raises(twinlink.ConfigurationError, match="role gnb: make one for the router"):
        site.configure(GRANTED)
