"""The whole way with the emulator's E3 agent: every generation, over ZeroMQ and POSIX sockets, and its failures."""

import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import twinlink_e3 as e3
from twinlink_exporter import exporter as exporter_module
from twinlink_exporter.__main__ import make_parser
from twinlink_exporter.generation_search import GenerationSearch
from twinlink_exporter.observation import Carrier
from twinlink_exporter.posix_sockets import PosixSockets
from twinlink_exporter.sockets import open_sockets
from twinlink_ran_emulator import make_recording

from tests.ran_emulator.running import Process
from twinlink.control import PrbBlock, PrbBlockResult
from twinlink.spectrum import Spectrum
from twinlink.testing import patience, wait_until

from .conftest import LONG_MS, StartExporter, Twin
from .emulated_agent import EmulatedAgent

G0, G1, G2A, G2B = e3.ASN1_CODECS.values()
JSON_G0, JSON_G2, JSON_NESTED = e3.JSON_CODECS.values()


@pytest.fixture
def posix(endpoints: e3.Endpoints) -> e3.Endpoints:
    return replace(endpoints, link="posix")


def propose(twin: Twin, identifier: str, prbs: tuple[int, ...] = (40, 41)) -> PrbBlockResult:
    """Send a decision; returns its answer."""
    twin[0].sender("control").send(PrbBlock(identifier, prbs, time.time_ns(), LONG_MS).encode())
    message = twin[0].receiver("control-result").receive(timeout=patience())
    assert message is not None
    return PrbBlockResult.decode(message.payload)


def take_observations(twin: Twin, count: int) -> None:
    """Receive so many, after which the twin is in sync."""
    for _ in range(count):
        message = twin[0].receiver("spectrum").receive(timeout=patience())
        assert message is not None
        assert Spectrum.decode(message.payload).e3["sample_count"] == 1536


@pytest.mark.parametrize(("link", "asked"), [("zmq", "zmq"), ("posix", "posix"), ("zmq", "auto"), ("posix", "auto")])
def test_an_exporter_that_ends_while_it_is_set_up_leaves_no_identifier(
    start_exporter: StartExporter, endpoints: e3.Endpoints, monkeypatch: pytest.MonkeyPatch, link: str, asked: str
) -> None:
    monkeypatch.setattr(exporter_module, "LEAVE_S", patience())
    with EmulatedAgent(replace(endpoints, link=link), G2B) as agent:
        exporter = start_exporter(replace(endpoints, link=asked))
        exporter.wait_for("e3-setup-request")
        exporter.stop()
        agent.wait_for(lambda a: a.agent.counters["ReleaseMessage"] == a.agent.counters["SetupRequest"])
        assert not agent.agent._dapps


def test_posix_sockets_over_tcp(start_exporter: StartExporter, tcp_endpoints: e3.Endpoints, twin: Twin) -> None:
    endpoints = replace(tcp_endpoints, link="posix")
    exporter = start_exporter(endpoints)
    with EmulatedAgent(endpoints, G2B):  # it comes late
        take_observations(twin, 5)
        assert propose(twin, "b-1").status == "installed"
    exporter.wait_for("e3-lost")


@pytest.mark.parametrize("link", ["zmq", "posix"])
def test_a_gnb_that_restarts_is_survived_whatever_it_leaves_behind(
    start_exporter: StartExporter, endpoints: e3.Endpoints, twin: Twin, link: str
) -> None:
    endpoints = replace(endpoints, link=link)
    exporter = start_exporter(endpoints)
    lives: list[tuple[e3.Codec, bool]] = [(G0, True), (G2B, True), (G1, False), (JSON_G0, True), (G0, False)]
    for number, (codec, killed) in enumerate(lives, 1):
        with EmulatedAgent(endpoints, codec, first_dapp=number * 10) as agent:
            exporter.wait_for("subscribed", number)
            agent.stop(killed=killed)
        exporter.wait_for("e3-lost", number)
    setups = [(event["dapp_id"], event["generation"]) for event in exporter.events("e3-setup")]
    assert setups == [(10, "G0"), (20, "G2b"), (30, "G1"), (40, "JSON-G0"), (50, "G0")]


@pytest.mark.parametrize("link", ["zmq", "posix"])
def test_another_agent_at_the_same_path_is_noticed_while_the_old_one_hangs(
    start_exporter: StartExporter, endpoints: e3.Endpoints, twin: Twin, link: str
) -> None:
    endpoints = replace(endpoints, link=link)
    exporter = start_exporter(endpoints)
    with EmulatedAgent(endpoints, G0):
        exporter.wait_for("subscribed")
        for endpoint in (endpoints.setup, endpoints.to_dapp, endpoints.from_dapp):
            Path(endpoint.removeprefix("ipc://")).unlink()
        with EmulatedAgent(endpoints, G2B, first_dapp=9):
            exporter.wait_for("e3-lost")
            exporter.wait_for("subscribed", 2)
            assert exporter.events("e3-setup")[-1]["dapp_id"] == 9


def test_an_agent_that_hangs_is_noticed_over_zeromq(
    start_exporter: StartExporter, endpoints: e3.Endpoints, tmp_path: Path
) -> None:
    """By ZMTP heartbeats: its sockets stay open, and E3 has none of its own."""
    make_recording.write(tmp_path / "short", make_recording.Settings(n_prbs=24, seconds=0.5, n_ues=1, episodes=()))
    options = ("--e3-generation", "G2a", "--loop", "0")
    with Process(tmp_path / "short.sigmf-meta", endpoints, tmp_path / "emulator", *options) as emulator:
        exporter = start_exporter(endpoints, carrier=Carrier(24))
        exporter.wait_for("subscribed")
        emulator.process.send_signal(signal.SIGSTOP)
        exporter.wait_for("e3-lost")


def test_without_the_control_every_decision_is_rejected(
    start_exporter: StartExporter, posix: e3.Endpoints, twin: Twin
) -> None:
    with EmulatedAgent(posix, G2B, controls=False) as agent:
        exporter = start_exporter(posix, clear_at_start=True)
        take_observations(twin, 5)
        answer = propose(twin, "b-1")
        assert (answer.status, answer.reason) == ("rejected", "e3: the E3 agent offers no control of PRB blocks")
        exporter.stop()
        agent.wait_for(lambda a: not a.agent._dapps)
        assert agent.agent.counters["DAppControlAction"] == 0
    assert "offers no control" in exporter.said()


def test_another_generation_than_the_given_one_is_named_and_the_agent_serves_on(
    start_exporter: StartExporter, posix: e3.Endpoints
) -> None:
    with EmulatedAgent(posix, G2B) as agent:
        exporter = start_exporter(posix, search=GenerationSearch.of("G0"))
        exporter.wait_for("e3-refused")
        assert "speaks G2b, which --e3-generation G0 excludes" in exporter.events("e3-refused")[0]["reason"]
        start_exporter(posix).wait_for("subscribed")
        agent.wait_for(lambda a: a.subscribed == [1])


def test_zeromq_at_the_posix_endpoint_is_named(start_exporter: StartExporter, posix: e3.Endpoints) -> None:
    with EmulatedAgent(replace(posix, link="zmq"), G0):
        exporter = start_exporter(posix)
        exporter.wait_for("e3-undecodable")
        assert "set --e3-link zmq" in exporter.said()


def test_posix_sockets_at_the_zeromq_endpoint_are_named_and_sent_nothing(
    start_exporter: StartExporter, endpoints: e3.Endpoints
) -> None:
    with EmulatedAgent(replace(endpoints, link="posix"), G0) as agent:
        exporter = start_exporter(endpoints)
        wait_until(lambda: "does not greet as ZeroMQ does: set --e3-link posix" in exporter.said())
        assert agent.agent.counters["malformed"] == 0


def test_the_link_is_found_whatever_agent_follows(
    start_exporter: StartExporter, endpoints: e3.Endpoints, twin: Twin
) -> None:
    exporter = start_exporter(replace(endpoints, link=e3.ANY_LINK))
    exporter.wait_for("e3-setup-request")
    for number, (link, killed) in enumerate(
        (("posix", True), ("zmq", False), ("posix", False), ("zmq", True), ("zmq", False)), 1
    ):
        with EmulatedAgent(replace(endpoints, link=link), G2B, first_dapp=number) as agent:
            exporter.wait_for("subscribed", number)
            take_observations(twin, 5)
            agent.stop(killed=killed)
        exporter.wait_for("e3-lost", number)
        assert exporter.events("e3-setup")[-1]["link"] == link
        assert agent.agent.counters["malformed"] == 1  # the question in G0
    assert exporter.counters.undecodable == 0


@pytest.mark.parametrize("link", e3.LINKS)
def test_another_setup_keeps_the_connections_of_the_link(endpoints: e3.Endpoints, link: str) -> None:
    """As after subscriptions without an answer: the identifier of the first setup is given back over them."""
    with EmulatedAgent(replace(endpoints, link=link), G0) as agent:
        sockets = open_sockets(replace(endpoints, link=e3.ANY_LINK))
        replies: list[bytes] = []

        def answered() -> bool:
            sockets.tick(time.monotonic_ns())
            replies.extend(filter(None, [sockets.receive_setup()]))
            return bool(replies) and sockets.connected

        for number in (1, 2):
            replies.clear()
            sockets.send_setup(e3.encode(e3.SetupRequest(number, "1.0.0", "dapp", "1", "v")))
            wait_until(answered)
            assert sockets.link == link
        sockets.send(e3.encode(e3.ReleaseMessage(1, 1)))
        wait_until(lambda: sockets.tick(time.monotonic_ns()) or agent.agent.counters["ReleaseMessage"] == 1)
        sockets.close()
        assert agent.agent._dapps == {2}


def test_the_exporter_finds_the_link_unless_it_is_given_one() -> None:
    for arguments, link in (([], e3.ANY_LINK), (["--e3-link", "posix"], "posix")):
        assert e3.endpoints_of(make_parser().parse_args(arguments)).link == link


def test_an_agent_that_sends_no_frames_is_left_and_counted(start_exporter: StartExporter, posix: e3.Endpoints) -> None:
    with EmulatedAgent(posix, G0) as agent:
        exporter = start_exporter(posix)
        exporter.wait_for("subscribed")
        agent.garble()
        exporter.wait_for("e3-lost")
        exporter.wait_for("subscribed", 2)
    assert exporter.counters.undecodable >= 1  # more where it was connected twice meanwhile


def test_many_pdus_at_once_reach_a_posix_agent_one_by_one(posix: e3.Endpoints) -> None:
    """The RAN takes one read for one PDU: what is sent too early is lost with what precedes it."""
    with EmulatedAgent(posix, G0) as agent:
        sockets = PosixSockets(posix)
        wait_until(lambda: sockets.tick(time.monotonic_ns()) or sockets.connected)
        for dapp in range(1, 51):
            sockets.send(e3.encode(e3.ReleaseMessage(dapp, dapp)))
        wait_until(lambda: sockets.tick(time.monotonic_ns()) or agent.agent.counters["ReleaseMessage"] == 50)
        sockets.close()
    assert agent.agent.counters["malformed"] == 0
