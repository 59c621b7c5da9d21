"""Zenoh through a router with identities: which nodes may connect, and what they may do there."""

from pathlib import Path

import pytest

import twinlink
from tests.identity.nodes import REFUSED_S, deliver, make, streaming
from tests.identity.sites import GRANTED, NAMESPACE, OTHER, Site, running
from tests.identity.test_authenticated_zenoh import Spy, issued_by, refused_frames
from twinlink.identity import trust
from twinlink.protocol.frames import Kind
from twinlink.testing import patience, wait_until
from twinlink.testing.base import wait_for_event


def test_a_router_holds_names_and_namespaces_apart(tmp_path: Path) -> None:
    """One spy is of the same namespace, one is of another, and one has a certificate in another name."""
    site, folder = Site(tmp_path), tmp_path
    near, far, borrower = (make(folder, name, "observer") for name in ("near", "far", "borrower"))
    for spying in (near, far, borrower):
        spying.trust(site.router)
        for node in (site.router, site.gnb, site.twin):
            node.trust(spying)
    granted = {NAMESPACE: ("gnb-1", "twin-1", "near", "borrower"), OTHER: ("far",)}
    with running(site, granted), site.open(site.twin) as twin, site.open(site.gnb) as gnb:
        wait_until(lambda: twin.peers() and gnb.peers())
        got: list[twinlink.Message] = []
        for link in (twin, gnb):
            link.receiver("control", handler=got.append)
        spies = [
            Spy(site.endpoint, near, mode="client"),
            Spy(site.endpoint, far, mode="client"),
            Spy(site.endpoint, borrower, issued_by(borrower, "twin-1", tmp_path), "client"),
        ]
        try:
            for spy in spies:
                for name in ("gnb-1", "twin-1", "far", "borrower"):
                    spy.put(f"{NAMESPACE}/{name}", "traffic/control", name, Kind.DATA, b"forged")
                    spy.put(f"{NAMESPACE}/{name}", "traffic/_link", name, Kind.BYE, b"")
            spies[0].put(f"{NAMESPACE}/near", "traffic/control", "near", Kind.DATA, b"not of this role")
            deliver(gnb, twin, "telemetry")
            deliver(twin, gnb, "answer")
            wait_until(lambda: refused_frames(twin) == refused_frames(gnb) == {"data": 10})
            assert got == []
            assert [spy.heard for spy in spies[1:]] == [[], []]
            assert (twin.peers(), gnb.peers()) == (["gnb-1"], ["twin-1"])
        finally:
            for spy in spies:
                spy.session.close()  # type: ignore[no-untyped-call]


def test_a_node_says_why_it_refuses_a_router(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (site.gnb.folder / "trusted").unlink()
    with running(site), site.open(site.gnb) as gnb, site.open(site.twin) as twin:
        with pytest.raises(twinlink.AuthenticationError, match="no key of a router is trusted in"):
            gnb.wait_ready(patience(REFUSED_S))
        site.gnb.trust(make(tmp_path, "router-2", "router"))
        wait_until(lambda: "(of router-2)" in (gnb._transport.authentication_problem or ""))
        site.gnb.trust(site.twin)
        site.gnb.trust(site.router)
        wait_until(lambda: gnb.peers() and twin.peers())
        deliver(gnb, twin, "spectrum")


def test_a_router_takes_only_nodes_that_it_was_given(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with running(site, {NAMESPACE: ("twin-1",)}), site.open(site.gnb) as gnb, site.open(site.twin) as twin:
        with site.open(None) as plain:
            with pytest.raises(twinlink.AuthenticationError, match=r"refuses the key of this side, gnb-1.*key router"):
                gnb.wait_ready(patience(REFUSED_S))
            with pytest.raises(twinlink.AuthenticationError, match="takes only nodes with an identity"):
                plain.wait_ready(patience(REFUSED_S))
        site.start()
        wait_until(lambda: gnb.peers() and twin.peers())
        deliver(gnb, twin, "spectrum")


def test_rotation_through_a_router_loses_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with running(site), site.open(site.gnb) as gnb, site.open(site.twin) as twin:
        wait_until(lambda: gnb.peers() and twin.peers())
        with streaming(twin, gnb) as got:

            def goes_on() -> None:
                seen = len(got)
                wait_until(lambda: len(got) > seen + 100)

            old, line = site.twin.identity.fingerprint, trust.prepare_rotation(site.twin.folder)
            for other in (site.router, site.gnb):
                trust.trust(other.folder, line, "twin", beside=True)
            site.start()
            trust.complete_rotation(site.twin.folder)
            goes_on()
            for other in (site.router, site.gnb):
                other.revoke(site.twin, old)

            old, line = site.router.identity.fingerprint, trust.prepare_rotation(site.router.folder)
            for other in (site.gnb, site.twin):
                trust.trust(other.folder, line, "router", beside=True)
            trust.complete_rotation(site.router.folder)
            site.start()
            goes_on()
            for other in (site.gnb, site.twin):
                other.revoke(site.router, old)
            goes_on()


def test_a_node_that_revokes_a_peer_needs_no_router_for_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with running(site), site.open(site.gnb) as gnb, site.open(site.twin) as twin:
        wait_until(lambda: gnb.peers() and twin.peers())
        site.twin.revoke(site.gnb)
        assert wait_for_event(twin, twinlink.PeerDown).reason == "untrusted"
        inbox = twin.receiver("spectrum")
        gnb.sender("spectrum").send(b"of a revoked key")
        wait_until(lambda: refused_frames(twin))
        assert inbox.receive(timeout=0) is None
        assert twin.peers() == []
        refused = wait_for_event(twin, twinlink.Refused)
        assert (refused.identity, refused.reason) == ("gnb-1", "revoked")
        with pytest.raises(twinlink.AuthenticationError, match="this side refuses gnb-1, which it hears through the"):
            twin.wait_ready(patience())
        wait_until(lambda: not gnb.peers())
        with pytest.raises(twinlink.AuthenticationError, match="twin-1 refuses the key of this side, gnb-1"):
            gnb.wait_ready(patience())


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
