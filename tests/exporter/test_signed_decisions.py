"""With an identity, the exporter obeys signed decisions of trusted twins, over a link that proves nothing itself."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from twinlink_e3 import Endpoints
from twinlink_exporter.authentication import Authentication

import twinlink
from twinlink.control import PrbBlock, PrbBlockResult, SensingPolicy, unread_id
from twinlink.identity import Identity, trust
from twinlink.identity.watched import WatchedIdentity
from twinlink.signed_payload import HEAD_OCTETS, Signer, Verified, Verifier
from twinlink.testing import free_endpoint, patience, wait_until

from .agent import Agent
from .conftest import LONG_MS, RunningExporter, trusting_pair
from .twin_side import receive


class Side:
    """An exporter with an identity, and a twin that it trusts on a link without one."""

    def __init__(self, folder: Path, endpoints: Endpoints) -> None:
        self.folder, self._endpoints = folder, endpoints
        self.twin, self.gnb = (WatchedIdentity(Identity.load(one)) for one in trusting_pair(folder))
        self.endpoint = free_endpoint()
        self.link = twinlink.open("zeromq", listen=self.endpoint, node="twin-1")
        self.link.receiver("spectrum", handler=lambda _: None)
        self.results = self.link.receiver("control-result")
        self.signer = Signer(self.twin, self.link.epoch)
        self.verifier = Verifier(self.twin, self.link.epoch)
        self.agent = Agent(endpoints)
        self._running: list[tuple[RunningExporter, twinlink.Link]] = []

    def start(self, *, identity: bool = True) -> RunningExporter:
        link = twinlink.open("zeromq", connect=self.endpoint, node="gnb-1")
        link.wait_ready(patience())
        authentication = Authentication(self.gnb if identity else None, link.epoch)
        log = self.folder / f"log-{len(self._running)}.jsonl"
        exporter = RunningExporter(link, self._endpoints, log, authentication=authentication)
        self._running.append((exporter, link))
        exporter.wait_in_sync(self.agent)
        return exporter

    @property
    def gnb_session(self) -> int:
        return self._running[-1][1].epoch

    def stop(self) -> None:
        for exporter, link in self._running:
            exporter.stop()
            link.close()

    def close(self) -> None:
        self.stop()
        self.link.close()
        self.agent.stop()

    def send(self, payload: bytes) -> None:
        self.link.sender("control").send(payload)

    def sign(self, decision: bytes, node: str = "gnb-1") -> bytes:
        return self.signer.sign("control", decision, node, self.gnb_session)

    def result(self) -> PrbBlockResult:
        """The next result, which must be signed."""
        (message,) = receive(self.results, 1)
        verdict = self.verifier.verify("control-result", message.payload, message.node, message.epoch)
        assert isinstance(verdict, Verified), verdict
        return PrbBlockResult.decode(verdict.body)


@pytest.fixture
def side(tmp_path: Path, endpoints: Endpoints) -> Iterator[Side]:
    made = Side(tmp_path, endpoints)
    try:
        yield made
    finally:
        made.close()


def decision(id: str, prbs: tuple[int, ...] = (40, 41)) -> bytes:
    return PrbBlock(id, prbs, time.time_ns(), LONG_MS, "test").encode()


def test_a_signed_decision_is_installed_and_what_is_not_as_signed_never(side: Side) -> None:
    exporter = side.start()
    good = side.sign(decision("b-1"))
    side.send(good)
    installed = side.result()
    assert (installed.id, installed.status) == ("b-1", "installed")

    stranger = Identity.create(side.folder / "stranger", "twin-1", "twin")
    changed = bytearray(side.sign(decision("b-2")))
    changed[HEAD_OCTETS + changed[HEAD_OCTETS:].index(b"41")] = ord("5")
    forgeries = {
        "unsigned": decision("b-2"),
        "flow": side.signer.sign("control-result", decision("b-2")),
        "key": Signer(WatchedIdentity(stranger), side.link.epoch).sign(
            "control", decision("b-2"), "gnb-1", side.gnb_session
        ),
        "signature": bytes(changed),
        "audience": side.sign(decision("b-2"), "gnb-2"),
        "restart": side.signer.sign("control", decision("b-2"), "gnb-1", side.gnb_session ^ 1),
        "session": Signer(side.twin, side.link.epoch ^ 1).sign("control", decision("b-2"), "gnb-1", side.gnb_session),
        "replay": good,
    }
    for number, (rule, payload) in enumerate(forgeries.items(), 1):
        side.send(payload)
        rejected = side.result()
        assert (rejected.status, rejected.reason.partition(":")[0]) == ("rejected", rule)
        assert rejected.id == {"replay": "b-1", "audience": "b-2", "restart": "b-2", "session": "b-2"}.get(
            rule,
            unread_id(side.link.epoch, number),  # what no trusted twin has signed is not read
        )
        assert rejected.prbs == (40, 41)  # stand as before
        assert exporter.exporter.outcomes["rejected", rule] == 1  # type: ignore[index]
    assert exporter.counters.blocks_rejected == len(forgeries)
    assert side.agent.controls == [[40, 41]]

    side.send(side.sign(decision("b-3", (60,))))
    side.agent.wait_for(lambda agent: agent.controls == [[40, 41], [60]])


def test_a_sensing_policy_counts_if_it_is_signed(side: Side) -> None:
    side.start()
    policy = SensingPolicy("p-1", (0x3F80,) * 20, time.time_ns(), LONG_MS).encode()
    side.send(policy)
    assert side.result().reason.partition(":")[0] == "unsigned"
    side.send(side.sign(policy))
    assert side.result().reason == "e3: the E3 agent offers no control of the sensing policy"


def test_a_decision_of_before_a_restart_of_the_exporter_and_one_of_a_revoked_twin_do_not_count(side: Side) -> None:
    side.start()
    before = side.sign(decision("b-1"))
    side.stop()
    exporter = side.start()
    side.send(before)
    assert side.result().reason.startswith("restart: ")
    trust.revoke(side.gnb.identity.folder, "twin-1")
    side.gnb.identity = Identity.load(side.gnb.identity.folder)  # a link with an identity does it by itself
    side.send(side.sign(decision("b-2")))
    assert side.result().reason == "revoked: this key of twin-1 was revoked"
    assert side.agent.controls == []
    wait_until(lambda: [event["reason"][:7] for event in exporter.events("block-rejected")] == ["restart"])


@pytest.mark.parametrize("identity", [True, False])
def test_a_decision_that_is_too_long_is_not_assembled_and_its_sender_is_told(side: Side, identity: bool) -> None:
    exporter = side.start(identity=identity)
    events = side.link.events()
    side.send(b"[" + b"[]," * 1_000_000 + b"[]]")
    while not isinstance(event := events.receive(timeout=patience()), twinlink.Lost):
        assert event is not None
    assert (event.flow, event.first, event.end, event.peers) == ("control", 0, 1, ("gnb-1",))
    side.send(side.sign(decision("b-1")))
    if identity:
        assert side.result().id == "b-1"
    else:
        (message,) = receive(side.results, 1)
        assert PrbBlockResult.decode(message.payload).id == unread_id(side.link.epoch, 1)
    wait_until(lambda: sum(exporter.exporter.outcomes.values()) == 1)
    exporter.wait_for("link-unclaimed")


def test_without_an_identity_no_decision_counts_unless_anybody_may_decide(side: Side) -> None:
    exporter = side.start(identity=False)
    side.send(decision("b-1"))
    (message,) = receive(side.results, 1)
    result = PrbBlockResult.decode(message.payload)
    assert (result.status, result.reason.partition(":")[0]) == ("rejected", "identity")
    assert result.id == unread_id(side.link.epoch, 0)
    assert "--insecure-control" in result.reason
    assert exporter.exporter.outcomes["rejected", "identity"] == 1
    assert side.agent.controls == []
