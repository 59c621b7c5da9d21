"""The exporter between a real E3 agent and a real twin, over real sockets."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from twinlink_e3 import Endpoints
from twinlink_exporter import block, decision_check, link_inbox, session
from twinlink_exporter.decision_guard import Limits, check
from twinlink_exporter.observation import Carrier
from twinlink_exporter.twin_sync import SyncLimits

import twinlink
from twinlink.spectrum import Spectrum
from twinlink.testing import free_endpoint, patience, wait_until

from .agent import Agent, encode_indication, encode_pdu
from .conftest import LONG_MS, RunningExporter, StartExporter, Twin
from .twin_side import natural, propose, receive, results, say, symbol

ACK_WAIT_NS = block.ACK_WAIT_NS


@pytest.fixture(autouse=True)
def an_agent_may_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for its answer to a control, however slow this machine is."""
    monkeypatch.setattr(block, "ACK_WAIT_NS", LONG_MS * block.MS)


@pytest.mark.parametrize(("n_prbs", "fft_size"), [(106, 1536), (106, 2048), (51, 1024), (273, 4096)])
def test_an_indication_reaches_the_twin_cropped_and_in_natural_order(
    start_exporter: StartExporter, endpoints: Endpoints, twin: Twin, n_prbs: int, fft_size: int
) -> None:
    carrier = Carrier(n_prbs, 30_000, 3.5e9)
    with Agent(endpoints, first_dapp_id=42) as agent:
        start_exporter(endpoints, carrier=carrier)
        agent.wait_for(lambda a: a.subscribed == [42])
        bins = symbol(fft_size)
        before_ns = time.time_ns()
        agent.send(encode_indication(42, bins.tobytes(), timestamp=9))
        (message,) = receive(twin[0].receiver("spectrum"), 1)
    spectrum = Spectrum.decode(message.payload)
    assert np.array_equal(spectrum.samples, natural(bins, n_prbs))
    assert (spectrum.n_prbs, spectrum.scs_hz, spectrum.centre_hz, spectrum.fft_size, spectrum.symbol) == (
        n_prbs, 30_000, 3.5e9, fft_size, None
    )  # fmt: skip
    assert before_ns <= spectrum.observed_ns <= message.sent_ns
    assert {key: spectrum.e3[key] for key in ("dapp_id", "ran_function_id", "sample_count", "timestamp")} == {
        "dapp_id": 42, "ran_function_id": 1, "sample_count": fft_size, "timestamp": 9
    }  # fmt: skip


def test_it_works_over_tcp_too(start_exporter: StartExporter, tcp_endpoints: Endpoints, twin: Twin) -> None:
    with Agent(tcp_endpoints) as agent:
        start_exporter(tcp_endpoints)
        agent.wait_for(lambda a: a.subscribed == [1])
        agent.send(encode_indication(1, symbol().tobytes()))
        receive(twin[0].receiver("spectrum"), 1)


def test_a_burst_arrives_complete_and_in_order(start_exporter: StartExporter, endpoints: Endpoints, twin: Twin) -> None:
    with Agent(endpoints) as agent:
        exporter = start_exporter(endpoints)
        agent.wait_for(lambda a: a.subscribed == [1])
        agent.send(*(encode_indication(1, symbol().tobytes(), timestamp=k) for k in range(1000)))
        got = receive(twin[0].receiver("spectrum"), 1000)
    assert [Spectrum.decode(message.payload).e3["timestamp"] for message in got] == list(range(1000))
    assert exporter.counters.indications == exporter.counters.exported == 1000


def test_garbage_and_what_is_for_others_is_counted_and_passed_over(
    start_exporter: StartExporter, endpoints: Endpoints, twin: Twin
) -> None:
    good = encode_indication(1, symbol().tobytes())
    garbage = [
        b"", b"\x00", b"\xff" * 50, good[:6], good[:100], b"\x00\x05" + good,
        encode_indication(1, b"\x01" * 6145),  # no whole bins
        encode_indication(1, b"\x01" * 400),  # no FFT size
        encode_indication(1, symbol(1024).tobytes()),  # an FFT too small for 106 PRBs
    ]  # fmt: skip
    with Agent(endpoints) as agent:
        exporter = start_exporter(endpoints)
        agent.wait_for(lambda a: a.subscribed == [1])
        agent.send(*garbage)
        agent.send(encode_indication(2, symbol().tobytes()), encode_indication(1, symbol().tobytes(), ran_function=2))
        agent.send(encode_pdu("messageAck", {"requestId": 7, "responseCode": "positive"}))
        agent.send(encode_pdu("xAppControlAction", {"dAppIdentifier": 1, "ranFunctionIdentifier": 1,
                                                    "xAppControlData": b"x"}))  # fmt: skip
        agent.send(good)
        receive(twin[0].receiver("spectrum"), 1)
    assert (exporter.counters.undecodable, exporter.counters.for_others) == (len(garbage), 3)
    assert exporter.counters.exported == 1


def test_an_agent_that_comes_late_is_waited_for_and_one_that_restarts_is_set_up_again(
    start_exporter: StartExporter, endpoints: Endpoints, twin: Twin
) -> None:
    exporter = start_exporter(endpoints)
    spectrum = twin[0].receiver("spectrum")
    with Agent(endpoints, first_dapp_id=5) as agent:
        agent.wait_for(lambda a: a.subscribed == [5])
        agent.send(encode_indication(5, symbol().tobytes(), timestamp=1))
        receive(spectrum, 1)
    with Agent(endpoints, first_dapp_id=9) as agent:
        agent.wait_for(lambda a: a.subscribed == [9])
        agent.send(encode_indication(5, symbol().tobytes(), timestamp=2))  # the identifier of the last life
        agent.send(encode_indication(9, symbol().tobytes(), timestamp=3))
        (message,) = receive(spectrum, 1)
        assert Spectrum.decode(message.payload).e3["timestamp"] == 3
    assert [event["dapp_id"] for event in exporter.events("e3-setup")] == [5, 9]
    assert exporter.events("e3-setup-request")
    assert len(exporter.events("e3-lost")) >= 1


def test_an_agent_that_forgot_us_is_set_up_again_after_a_silence(
    start_exporter: StartExporter, endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "SILENCE_NS", 200_000_000)
    with Agent(endpoints) as agent:
        exporter = start_exporter(endpoints)
        agent.wait_for(lambda a: a.subscribed == [1])
        agent.wait_for(lambda a: a.subscribed[:2] == [1, 2])
        assert agent.releases[0] == 1
    assert exporter.events("e3-silent")


def test_garbage_in_answer_to_setup_is_asked_again(start_exporter: StartExporter, endpoints: Endpoints) -> None:
    replies = [b"\xff\xff\xff", encode_pdu("releaseMessage", {"dAppIdentifier": 1})]
    with Agent(endpoints, setup_replies=replies) as agent:
        exporter = start_exporter(endpoints)
        agent.wait_for(lambda a: a.subscribed == [1])
    assert exporter.counters.undecodable == 2


def test_a_block_is_installed_answered_and_expires(
    start_exporter: StartExporter, endpoints: Endpoints, twin: Twin
) -> None:
    with Agent(endpoints) as agent:
        exporter = start_exporter(endpoints)
        exporter.wait_in_sync(agent)
        propose(twin[0], validity_ms=4000)  # so long this machine may stand still
        agent.wait_for(lambda a: a.controls == [[40, 41], []])
        installed, cleared = results(twin[0], 2)
        assert agent.validities == [4, None]
    assert say(installed) == ("b-1", "installed", (40, 41))
    assert installed.reason == "acknowledged by the RAN"
    assert say(cleared) == ("b-1", "cleared", ())
    assert cleared.time_ns > installed.time_ns
    exporter.wait_for("block-cleared")
    (event,) = exporter.events("block-installed")
    assert event["proposed_ns"] <= event["received_ns"] <= event["installed_ns"]
    assert event["prbs"] == [40, 41]
    assert [event["reason"] for event in exporter.events("block-cleared")] == ["expired"]
    wait_until(lambda: "PRB block b-1 has ended: its validity ended; no PRB is blocked any more" in exporter.said())
    assert "PRB block b-1 was acknowledged by the RAN: PRBs 40-41 are blocked" in exporter.said()


def test_an_agent_that_acknowledges_nothing_is_believed_at_handing_over(
    start_exporter: StartExporter, endpoints: Endpoints, twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block, "ACK_WAIT_NS", ACK_WAIT_NS)
    with Agent(endpoints, ack=None) as agent:
        exporter = start_exporter(endpoints)
        exporter.wait_in_sync(agent)
        propose(twin[0])
        (installed,) = results(twin[0], 1)
    assert installed.status == "installed"
    assert "acknowledged nothing" in installed.reason


def test_of_a_flood_of_decisions_the_oldest_are_dropped(
    start_exporter: StartExporter, endpoints: Endpoints, twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def slow_check(payload: bytes | memoryview, limits: Limits, now_ns: int) -> object:
        go_on.wait(patience())
        return check(payload, limits, now_ns)

    monkeypatch.setattr(decision_check, "check", slow_check)
    monkeypatch.setattr(link_inbox, "SIZE", 4)
    with Agent(endpoints) as agent:
        exporter = start_exporter(endpoints)
        exporter.wait_in_sync(agent)
        for k in range(20):
            propose(twin[0], f"b-{k}")
        propose(twin[0], "off", ())
        wait_until(lambda: exporter.counters.decisions_dropped >= 16)
        go_on.set()
        while results(twin[0], 1)[0].id != "off":
            pass
        propose(twin[0], "on")
        exporter.wait_for("decisions-dropped")


def test_a_block_that_the_ran_refuses_is_rejected(
    start_exporter: StartExporter, endpoints: Endpoints, twin: Twin
) -> None:
    with Agent(endpoints, ack="negative") as agent:
        exporter = start_exporter(endpoints)
        exporter.wait_in_sync(agent)
        propose(twin[0])
        (rejected,) = results(twin[0], 1)
    assert say(rejected) == ("b-1", "rejected", ())
    assert rejected.reason == "refused by the RAN"
    assert exporter.counters.blocks_rejected == 1


def test_a_ran_that_refuses_to_clear_is_named(start_exporter: StartExporter, endpoints: Endpoints, twin: Twin) -> None:
    with Agent(endpoints, ack="negative"):
        exporter = start_exporter(endpoints, clear_at_start=True)
        exporter.wait_for("block-not-cleared")


def test_what_the_guard_refuses_never_reaches_the_ran(
    start_exporter: StartExporter, endpoints: Endpoints, twin: Twin
) -> None:
    with Agent(endpoints) as agent:
        exporter = start_exporter(endpoints, limits=Limits(106, frozenset({0, 1}), LONG_MS, LONG_MS))
        exporter.wait_in_sync(agent)
        propose(twin[0], "protected", prbs=(1, 40))
        propose(twin[0], "outside", prbs=(106,))
        propose(twin[0], "old", age_ms=10 * LONG_MS)
        propose(twin[0], "future", age_ms=-10 * LONG_MS)
        propose(twin[0], "long", validity_ms=LONG_MS + 1)
        twin[0].sender("control").send(b"garbage")
        propose(twin[0], "good")
        answers = results(twin[0], 6)
        agent.wait_for(lambda a: a.controls == [[40, 41]])
    assert [(answer.id, answer.status) for answer in answers] == [
        *((id, "rejected") for id in ("protected", "outside", "old", "future", "long")),
        ("good", "installed"),
    ]
    rules = [event["reason"].split(":")[0] for event in exporter.events("block-rejected")]
    assert rules == ["protected", "range", "age", "age", "validity", "schema"]


def test_without_an_e3_session_a_block_is_rejected(
    start_exporter: StartExporter, endpoints: Endpoints, twin: Twin
) -> None:
    start_exporter(endpoints)
    propose(twin[0])
    (rejected,) = results(twin[0], 1)
    assert (rejected.status, rejected.reason) == ("rejected", "e3: there is no session with the E3 agent")


@contextmanager
def blocking(
    start_exporter: StartExporter, endpoints: Endpoints, twin: Twin
) -> Iterator[tuple[Agent, RunningExporter]]:
    """An agent with a block installed, and the exporter."""
    with Agent(endpoints) as agent:
        exporter = start_exporter(endpoints)
        exporter.wait_in_sync(agent)
        propose(twin[0])
        results(twin[0], 1)
        yield agent, exporter


def test_the_block_is_cleared_when_the_twin_is_lost(
    start_exporter: StartExporter, endpoints: Endpoints, twin: Twin
) -> None:
    with blocking(start_exporter, endpoints, twin) as (agent, exporter):
        twin[0].close()
        agent.wait_for(lambda a: a.controls == [[40, 41], []])
        agent.send(encode_indication(1, symbol().tobytes()))
    exporter.stop()
    assert [event["reason"] for event in exporter.events("block-cleared")] == ["twin-lost"]


def test_the_block_is_cleared_and_the_dapp_released_at_the_end(
    start_exporter: StartExporter, endpoints: Endpoints, twin: Twin
) -> None:
    with blocking(start_exporter, endpoints, twin) as (agent, exporter):
        exporter.stop()
        agent.wait_for(lambda a: a.releases == [1])
        assert agent.controls == [[40, 41], []]
        (cleared,) = results(twin[0], 1)
    assert (cleared.status, cleared.reason) == ("cleared", "the exporter ends")


def test_after_the_loss_of_the_agent_the_twin_is_told_and_the_next_one_is_cleared_first(
    start_exporter: StartExporter, endpoints: Endpoints, twin: Twin
) -> None:
    with blocking(start_exporter, endpoints, twin):
        pass
    (cleared,) = results(twin[0], 1)
    assert (cleared.status, cleared.prbs) == ("cleared", ())
    assert cleared.reason.startswith("the E3 agent was lost")
    with Agent(endpoints, first_dapp_id=2) as agent:
        agent.wait_for(lambda a: a.controls == [[]])


def test_clear_at_start(start_exporter: StartExporter, endpoints: Endpoints) -> None:
    with Agent(endpoints) as agent:
        start_exporter(endpoints, clear_at_start=True)
        agent.wait_for(lambda a: a.controls == [[]])


def test_nothing_is_sent_while_no_twin_is_there(endpoints: Endpoints, tmp_path: Path) -> None:
    with twinlink.open("zeromq", listen=free_endpoint()) as link, Agent(endpoints) as agent:
        exporter = RunningExporter(link, endpoints, tmp_path / "log")
        agent.wait_for(lambda a: a.subscribed == [1])
        agent.send(*(encode_indication(1, symbol().tobytes()) for _ in range(3)))
        agent.send(encode_pdu("messageAck", {"requestId": 7, "responseCode": "positive"}))
        wait_until(lambda: exporter.counters.without_twin == 3)
        time.sleep(1)  # the next symbol is of another window, so that there is a digest
        agent.send(encode_indication(1, symbol().tobytes()))
        wait_until(lambda: exporter.counters.without_twin == 4)
        exporter.stop()
        assert [link.stats()["sent"][flow]["sent"] for flow in ("spectrum", "digest")] == [0, 0]


def test_a_twin_that_takes_nothing_holds_up_neither_indications_nor_blocks(
    start_exporter: StartExporter, endpoints: Endpoints, twin: Twin
) -> None:
    """The window fills, observations are dropped and counted, and a decision still gets through."""
    count = 1200
    port_link = twin[0]
    port_link.receiver("spectrum")  # claimed, never read
    with Agent(endpoints) as agent:
        exporter = start_exporter(endpoints, window=1024 * 1024)
        exporter.wait_in_sync(agent)
        agent.send(*(encode_indication(1, symbol().tobytes()) for _ in range(count)))
        propose(port_link)
        assert results(port_link, 1)[0].status == "installed"
        wait_until(lambda: exporter.events("link-lost") and exporter.counters.indications > count)
        exporter.stop()
    assert exporter.counters.exported == exporter.counters.indications
    assert exporter.exporter.summary()["spectrum"]["lost"] > 0


def test_a_block_ends_when_the_twin_takes_nothing_in_and_none_is_made_until_it_does_again(
    start_exporter: StartExporter, endpoints: Endpoints, twin: Twin
) -> None:
    receiver = twin[0].receiver("spectrum")
    with Agent(endpoints) as agent:
        exporter = start_exporter(endpoints, window=1024 * 1024, sync_limits=SyncLimits(2.0, 0.0))
        exporter.wait_in_sync(agent)
        propose(twin[0], "before")
        assert say(results(twin[0], 1)[0]) == ("before", "installed", (40, 41))
        keep_sending(agent, lambda: len(agent.controls) == 2)  # the window fills, acknowledgements stop
        (cleared,) = results(twin[0], 1)
        assert say(cleared) == ("before", "cleared", ())
        assert "out of sync" in cleared.reason
        exporter.wait_for("block-cleared")
        assert [event["reason"] for event in exporter.events("block-cleared")] == ["out-of-sync"]
        propose(twin[0], "meanwhile")
        (rejected,) = results(twin[0], 1)
        assert say(rejected) == ("meanwhile", "rejected", ())
        assert rejected.reason.startswith("sync:")
        taking = threading.Thread(target=list, args=(receiver,))
        taking.start()
        keep_sending(agent, lambda: len(exporter.events("sync")) == 2)
        propose(twin[0], "after")
        assert say(results(twin[0], 1)[0]) == ("after", "installed", (40, 41))
        assert [event["state"] for event in exporter.events("sync")] == ["out-of-sync", "in-sync"]
        twin[0].close()
        taking.join()
    assert agent.controls == [[40, 41], [], [40, 41], []]


def keep_sending(agent: Agent, until: Callable[[], object]) -> None:
    """Indications, until it has come to that."""
    deadline = time.monotonic() + patience()
    while not until():
        assert time.monotonic() < deadline
        agent.send(encode_indication(1, symbol().tobytes()))
        time.sleep(0.002)
