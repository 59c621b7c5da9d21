"""A router that both nodes trust, and that alters, repeats, reorders and makes frames: no decision of it counts."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zenoh

import twinlink
from tests.identity.sites import NAMESPACE, Site
from tests.identity.test_authenticated_zenoh import refused_frames
from twinlink.protocol.authentication import epoch_prefix
from twinlink.protocol.frames import HEADER_OCTETS, Hello, Kind, frame
from twinlink.signed_payload import Refusal, Signer, Verifier
from twinlink.testing import free_endpoint, wait_until
from twinlink.transports import Endpoint
from twinlink.transports.zenoh_inbox import SEAL, SEAL_OCTETS
from twinlink.transports.zenoh_router import write_router

Change = Callable[[str, bytes], list[bytes]]


def unchanged(key: str, octets: bytes) -> list[bytes]:
    return [octets]


class DishonestRouter:
    """Two sessions with the keys of the router, one for each node, and a program between them.

    Attributes:
        endpoints: for the gNB, and for the twin.
        change: what it makes of a frame of the twin.
    """

    def __init__(self, site: Site) -> None:
        self.endpoints = [free_endpoint(1), free_endpoint(1)]
        self.change: Change = unchanged
        self._sessions = []
        for endpoint in self.endpoints:
            written = write_router(site.router.identity, {NAMESPACE: ("gnb-1", "twin-1")}, [Endpoint.parse(endpoint)])
            config = zenoh.Config.from_file(written)
            config.insert_json5("access_control", json.dumps({"enabled": False}))
            self._sessions.append(zenoh.open(config))
        to_gnb, to_twin = self._sessions
        self._subscribers = [
            to_gnb.declare_subscriber(f"{NAMESPACE}/gnb-1/*/*", lambda one: self._pass(to_twin, one, unchanged)),
            to_twin.declare_subscriber(f"{NAMESPACE}/twin-1/*/*", lambda one: self._pass(to_gnb, one, self.change)),
        ]

    def _pass(self, session: zenoh.Session, sample: zenoh.Sample, change: Change) -> None:
        for octets in change(str(sample.key_expr), sample.payload.to_bytes()):
            self.put(str(sample.key_expr), octets, session)

    def put(self, key: str, octets: bytes, session: zenoh.Session | None = None) -> None:
        """To the gNB, unless another session is given."""
        (session or self._sessions[0]).put(key, octets, allowed_destination=zenoh.Locality.REMOTE)

    def close(self) -> None:
        for session in self._sessions:
            session.close()  # type: ignore[no-untyped-call]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def router(site: Site) -> Iterator[DishonestRouter]:
    made = DishonestRouter(site)
    yield made
    made.close()


def sealed(octets: bytes) -> bytes:
    return octets + octets[SEAL]


def is_decision(key: str, octets: bytes) -> bool:
    return key.endswith("/traffic/control") and octets[3] == Kind.DATA


def altered(key: str, octets: bytes) -> list[bytes]:
    """One octet of each decision, behind its signature."""
    if not is_decision(key, octets):
        return [octets]
    changed = bytearray(octets)
    changed[-SEAL_OCTETS - 1] ^= 1
    return [bytes(changed)]


def renumbered(octets: bytes, by: int) -> bytes:
    number = int.from_bytes(octets[16:24]) + by
    return octets[:16] + number.to_bytes(8) + octets[24:]


class Decisions:
    """What the gNB makes of the decisions that it gets.

    Attributes:
        counted: bodies of those that count.
        refused: how many were refused, by rule.
    """

    def __init__(self, gnb: twinlink.Link) -> None:
        assert gnb.identity is not None
        self._verifier = Verifier(gnb.identity, gnb.epoch)
        self.counted: list[bytes] = []
        self.refused: Counter[str] = Counter()
        gnb.receiver("control", handler=self._decide)

    def _decide(self, message: twinlink.Message) -> None:
        verdict = self._verifier.verify("control", message.payload, message.node, message.epoch)
        if isinstance(verdict, Refusal):
            self.refused[verdict.rule] += 1
        else:
            self.counted.append(bytes(verdict.body))


def test_no_decision_of_a_router_counts(site: Site, router: DishonestRouter) -> None:
    def opened(endpoint: str, folder: Path) -> twinlink.Link:
        return twinlink.open("zenoh", connect=endpoint, identity=folder, mode="client", namespace=NAMESPACE)

    with (
        opened(router.endpoints[0], site.gnb.folder) as gnb,
        opened(router.endpoints[1], site.twin.folder) as twin,
    ):
        wait_until(lambda: gnb.peers() and twin.peers())
        assert twin.identity is not None
        signer, control, decisions = Signer(twin.identity, twin.epoch), twin.sender("control"), Decisions(gnb)
        refused = decisions.refused

        def send(body: bytes) -> None:
            control.send(signer.sign("control", body, "gnb-1", gnb.epoch))

        seen: list[tuple[str, bytes]] = []

        def recorded(key: str, octets: bytes) -> list[bytes]:
            if is_decision(key, octets):
                seen.append((key, octets))
            return [octets]

        router.change = recorded
        send(b"first")
        wait_until(lambda: decisions.counted)

        router.change = altered
        send(b"altered")
        wait_until(lambda: refused["signature"])
        router.change = unchanged

        # Repeated as they were, then with numbers that have not been there: the link would take those.
        key, octets = seen[0]
        signed = octets[HEADER_OCTETS:-SEAL_OCTETS]
        for by in (0, 2, 3):
            router.put(key, renumbered(octets, by))
        wait_until(lambda: refused["replay"] == 2)

        # Frames of its own making: in the name of the twin, of a twin that is not there, and of the router.
        epoch = int.from_bytes(octets[8:16])
        forged = frame(Kind.DATA, epoch, 4, time.time_ns(), b'{"id":"1","prbs":[1]}')
        router.put(key, sealed(forged))
        wait_until(lambda: refused["unsigned"])
        for name in ("twin-2", "router-1"):
            other = int.from_bytes(epoch_prefix(name) + b"fake")
            hello = frame(Kind.HELLO, other, 2**61, time.time_ns(), Hello(name, {}, {}).encode())
            router.put(f"{NAMESPACE}/{name}/traffic/_link", sealed(hello))
            router.put(f"{NAMESPACE}/{name}/traffic/control", sealed(frame(Kind.DATA, other, 0, 1, signed)))
            router.put(f"{NAMESPACE}/twin-1/traffic/_link", sealed(hello))
        wait_until(lambda: refused_frames(gnb) == {"hello": 4, "data": 2})

        assert decisions.counted == [b"first"]
        assert gnb.peers() == ["twin-1"]
