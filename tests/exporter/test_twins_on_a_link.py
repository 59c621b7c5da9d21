"""Which twin the exporter obeys: real links over both transports, two twins, strangers, and a twin that is killed."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from twinlink_e3 import Endpoints
from twinlink_exporter.decision_guard import Limits
from twinlink_exporter.observation import OCTETS_PER_BIN, Carrier
from twinlink_exporter.twin_sync import SyncLimits

import twinlink
from twinlink.control import PrbBlock
from twinlink.protocol.frames import HEADER_OCTETS, Kind, frame, parse
from twinlink.sync import State
from twinlink.testing import free_endpoint, patience, wait_until
from twinlink.testing.base import ForeignPeer
from twinlink.transport_options import TransportName
from twinlink.transports import transport_class
from twinlink.transports.base import Endpoint, make_options

from .agent import Agent, encode_indication
from .conftest import ALWAYS_IN_SYNC, LONG_MS, RunningExporter
from .twin_side import propose, results, say

# Short, so that what a twin does not acknowledge does not hold up what the others get.
FFT_SIZE = 16
CARRIER = Carrier(n_prbs=1, fft_size=FFT_SIZE)
IQ = bytes(FFT_SIZE * OCTETS_PER_BIN)
LIMITS = Limits(106, max_age_ms=LONG_MS, max_validity_ms=LONG_MS)
TWIN = Path(__file__).with_name("twin_process.py")


class Gnb:
    """An agent with an exporter that listens, and indications that come all the time."""

    def __init__(self, transport: TransportName, endpoints: Endpoints, log: Path, sync_limits: SyncLimits) -> None:
        self.transport, self.endpoint = transport, free_endpoint()
        self.agent = Agent(endpoints)
        self.link = twinlink.open(transport, listen=self.endpoint, node="gnb-1")
        self.exporter = RunningExporter(self.link, endpoints, log, CARRIER, LIMITS, sync_limits)
        self.silent = False
        self._links: list[twinlink.Link] = []
        self._processes: list[subprocess.Popen[str]] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._indicate)
        self.exporter.wait_for("subscribed")
        self._thread.start()

    def connect(self, node: str) -> twinlink.Link:
        """A twin that acknowledges observations, once it is in sync."""
        before = self.in_sync()
        self._links.append(twinlink.open(self.transport, connect=self.endpoint, node=node))
        self._links[-1].receiver("spectrum", handler=lambda _: None)
        self._links[-1].receiver("control-result")
        wait_until(lambda: self.in_sync() > before)
        return self._links[-1]

    def start_process(self, node: str) -> subprocess.Popen[str]:
        """The same as a process, which may be killed."""
        before = self.in_sync()
        command = [sys.executable, str(TWIN), self.transport, self.endpoint, node]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._processes.append(process)
        wait_until(lambda: self.in_sync() > before)
        return process

    def foreign(self) -> ForeignPeer:
        """What speaks the wire format over a bare transport."""
        backend = transport_class(self.transport)
        options = make_options(self.transport, backend.options_class, {})
        bare = backend(Endpoint.parse(self.endpoint), False, 1024 * 1024 + HEADER_OCTETS, options)
        bare.open()
        return ForeignPeer(bare)

    def in_sync(self) -> int:
        return self.exporter.exporter.twins_by_state()[State.IN_SYNC]

    def rejected(self, rule: str) -> int:
        outcomes = self.exporter.exporter.outcomes
        return sum(count for (status, why), count in list(outcomes.items()) if (status, why) == ("rejected", rule))

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        for process in self._processes:
            process.kill()
            process.communicate()
        for link in self._links:
            link.close()
        self.exporter.stop()
        self.link.close()
        self.agent.stop()

    def _indicate(self) -> None:
        while not self._ending.wait(0.01):
            if not self.silent:
                self.agent.send(encode_indication(self.agent.subscribed[-1], IQ))


@pytest.fixture(params=["zeromq", "zenoh"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sync_limits() -> SyncLimits:
    """So that no twin is out of sync because this machine is slow."""
    return ALWAYS_IN_SYNC


@pytest.fixture
def gnb(transport: TransportName, sync_limits: SyncLimits, endpoints: Endpoints, tmp_path: Path) -> Iterator[Gnb]:
    made = Gnb(transport, endpoints, tmp_path / "log.jsonl", sync_limits)
    try:
        yield made
    finally:
        made.close()


def decision(id: str) -> bytes:
    return PrbBlock(id, (40, 41), time.time_ns(), LONG_MS, "test").encode()


def ask(process: subprocess.Popen[str], decision: str) -> str:
    """Have a twin decide, and read the result."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(decision + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_a_stranger_that_says_no_hello_is_never_obeyed_and_disturbs_no_twin(gnb: Gnb) -> None:
    twin = gnb.connect("twin-1")
    stranger = gnb.foreign()

    def is_rejected() -> int:
        """Its first frames may be lost while it connects."""
        stranger.data("control", stranger.hellos, decision("stranger"))
        stranger.hellos += 1
        return gnb.rejected("peer")

    wait_until(is_rejected)
    propose(twin, "true")
    assert say(results(twin, 1)[0]) == ("true", "installed", (40, 41))
    before = gnb.rejected("peer")
    stranger.data("control", stranger.hellos, PrbBlock("stranger", (), time.time_ns(), 1, "clear").encode())
    wait_until(lambda: gnb.rejected("peer") > before)
    stranger.close()
    gnb.exporter.stop()
    gnb.agent.wait_for(lambda agent: agent.releases)
    assert gnb.agent.controls == [[40, 41], []]  # the latter at the end of the exporter
    assert say(results(twin, 1)[0]) == ("true", "cleared", ())  # and no answer to the stranger before


@pytest.mark.parametrize("transport", ["zeromq"])
def test_a_stranger_on_plain_pyzmq_is_never_obeyed(gnb: Gnb) -> None:
    host, _, port = gnb.endpoint.removeprefix("tcp/").rpartition(":")
    gnb.connect("twin-1")
    with zmq.Context() as context, context.socket(zmq.PUB) as stranger:
        stranger.linger = 0
        stranger.connect(f"tcp://{host}:{int(port) + 1}")
        sequence = 0

        def is_rejected() -> int:
            nonlocal sequence
            octets = frame(Kind.DATA, 7, sequence, time.time_ns(), decision("stranger"))
            stranger.send_multipart([b"traffic/control", octets])
            sequence += 1
            return gnb.rejected("peer")

        wait_until(is_rejected)
    assert gnb.agent.controls == []
    gnb.exporter.wait_for("block-rejected")
    (first, *_) = gnb.exporter.events("block-rejected")
    assert first["reason"] == "peer: the sender is not up, so its decisions do not count"


def test_a_twin_that_says_hello_and_acknowledges_nothing_is_not_obeyed(gnb: Gnb) -> None:
    twin = gnb.foreign()
    try:
        twin.flows = {"control": 0}
        twin.meet(gnb.link)
        sequence = 0

        def is_rejected() -> int:
            nonlocal sequence
            twin.hello(gnb.link.epoch)
            twin.data("control", sequence, decision("deaf"))
            sequence += 1
            return gnb.rejected("sync")

        wait_until(is_rejected)
    finally:
        twin.close()
    assert gnb.agent.controls == []
    reason = "sync: foreign is bound: it has acknowledged no observation since it came up"
    wait_until(lambda: reason in [event["reason"] for event in gnb.exporter.events("block-rejected")])


def test_a_second_twin_is_rejected_until_the_first_one_is_killed(gnb: Gnb) -> None:
    first, second = gnb.start_process("twin-1"), gnb.connect("twin-2")
    assert ask(first, "b-1 50 51").startswith("b-1 installed")
    propose(second, "b-2")
    (rejected,) = [result for result in results(second, 2) if result.id == "b-2"]
    assert rejected.status == "rejected"
    assert rejected.reason == "holder: twin-1 holds the block until it is down or out of sync"
    assert rejected.prbs == (50, 51)
    assert ask(first, "b-3 52").startswith("b-2 rejected")  # every twin gets every result
    gnb.agent.wait_for(lambda agent: agent.controls == [[50, 51], [52]])
    first.kill()
    gnb.agent.wait_for(lambda agent: agent.controls[2:] == [[]])
    propose(second, "b-4")
    gnb.agent.wait_for(lambda agent: agent.controls[3:] == [[40, 41]])
    gnb.exporter.wait_for("holder", 3)
    assert [event["reason"] for event in gnb.exporter.events("block-cleared")] == ["replaced", "twin-lost"]
    assert [event["node"] for event in gnb.exporter.events("holder")] == ["twin-1", None, "twin-2"]


def test_a_twin_that_restarts_decides_again_once_it_is_in_sync(gnb: Gnb) -> None:
    first = gnb.start_process("twin-1")
    assert ask(first, "b-1 50").startswith("b-1 installed")
    first.kill()
    gnb.agent.wait_for(lambda agent: agent.controls == [[50], []])
    again = gnb.start_process("twin-1")
    assert ask(again, "b-1 60").startswith("b-1 installed")
    assert gnb.agent.controls == [[50], [], [60]]
    gnb.exporter.wait_for("holder", 3)
    holders = gnb.exporter.events("holder")
    assert [event["node"] for event in holders] == ["twin-1", None, "twin-1"]
    assert holders[0]["epoch"] != holders[2]["epoch"]


class AckingPeer:
    """A twin that speaks the wire format itself, and acknowledges observations until it is told not to."""

    def __init__(self, gnb: Gnb) -> None:
        self.acknowledges = True
        self._gnb, self._peer = gnb, gnb.foreign()
        self._peer.flows = {"control": 0}
        self._peer.meet(gnb.link)
        self._sequence = 0
        self._decisions: list[bytes] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def decide(self, id: str) -> None:
        self._decisions.append(decision(id))

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        self._peer.close()

    def _run(self) -> None:
        peer, link = self._peer, self._gnb.link
        said = 0.0
        while not self._ending.is_set():
            if time.monotonic() - said > 0.1:
                said = time.monotonic()
                peer.hello(link.epoch)
            while self._decisions:
                peer.data("control", self._sequence, self._decisions.pop(0))
                self._sequence += 1
            if (received := peer.receive(0.01)) is None or received[0] != b"traffic/spectrum":
                continue
            kind, _, sequence, _ = parse(received[1])
            if kind is Kind.DATA and self.acknowledges:
                peer.ack(link, "spectrum", sequence + 1, sequence)


@pytest.mark.parametrize("sync_limits", [SyncLimits(2.0, 0.0)])
def test_a_twin_that_stops_to_acknowledge_loses_its_block_to_the_next(gnb: Gnb) -> None:
    first = AckingPeer(gnb)
    try:
        wait_until(gnb.in_sync)
        first.decide("b-1")
        gnb.agent.wait_for(lambda agent: agent.controls == [[40, 41]])
        second = gnb.connect("twin-2")
        propose(second, "b-2", (60,))
        wait_until(lambda: gnb.rejected("holder"))
        first.acknowledges = False
        gnb.agent.wait_for(lambda agent: agent.controls == [[40, 41], []])
        first.decide("b-3")
        wait_until(lambda: gnb.rejected("sync"))
        propose(second, "b-4", (60,))
        gnb.agent.wait_for(lambda agent: agent.controls == [[40, 41], [], [60]])
    finally:
        first.close()
    gnb.exporter.wait_for("holder", 3)
    (cleared,) = gnb.exporter.events("block-cleared")
    assert (cleared["id"], cleared["reason"]) == ("b-1", "out-of-sync")
    (out,) = [event for event in gnb.exporter.events("sync") if event["state"] == "out-of-sync"]
    assert out["node"] == "foreign"


@pytest.mark.parametrize("sync_limits", [SyncLimits(1.0, 0.0)])
def test_a_twin_that_is_out_of_sync_cannot_renew_its_block(gnb: Gnb) -> None:
    """It goes on to renew it when the gNB is silent, so that there is nothing new to acknowledge."""
    twin = gnb.connect("twin-1")
    sender, deadline = twin.sender("control"), time.monotonic() + patience()

    def renew() -> None:
        assert time.monotonic() < deadline
        sender.send(PrbBlock("b-1", (40, 41), time.time_ns(), 2000, "renewed").encode())
        time.sleep(0.05)

    while len(gnb.agent.controls) < 3:
        renew()
    gnb.silent = True
    while not (gnb.rejected("sync") and gnb.agent.controls[-1] == []):
        renew()
    asked = len(gnb.agent.controls)
    for _ in range(5):
        renew()
    assert len(gnb.agent.controls) == asked
    gnb.exporter.wait_for("block-cleared")
    assert {event["reason"] for event in gnb.exporter.events("block-cleared")} <= {"out-of-sync", "expired"}
    reason = "sync: twin-1 is out-of-sync: the newest observation that it acknowledged was sent "
    wait_until(lambda: any(event["reason"].startswith(reason) for event in gnb.exporter.events("block-rejected")))
