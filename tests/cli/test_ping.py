import os
import signal
import time

import pytest

from tests.cli.running import PATIENCE_S, Start

TRANSPORTS = ("zeromq", "zenoh")


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("pinger_listens", [False, True])
def test_either_side_listens(start: Start, endpoint: str, transport: str, pinger_listens: bool) -> None:
    sides = ("--listen", "--connect") if pinger_listens else ("--connect", "--listen")
    common = ("--transport", transport, "--count", "20", "--json")
    pong = start("pong", *common, sides[1], endpoint, "--node", "twin-1")
    ping = start("ping", *common, sides[0], endpoint, "--node", "gnb-1", "--interval", "0", "--size", "1K")
    assert ping.code() == 0
    assert pong.code() == 0

    *answers, summary = ping.records()
    assert [answer["sequence"] for answer in answers] == list(range(20))
    for answer in answers:
        assert answer["node"] == "twin-1"
        assert answer["octets"] == 1024
        residence_ns = answer["peer_sent_ns"] - answer["peer_received_ns"]
        assert answer["rtt_without_residence_ns"] == answer["rtt_ns"] - residence_ns
        assert 0 < answer["rtt_without_residence_ns"] <= answer["rtt_ns"]
        assert answer["sent_ns"] <= answer["peer_received_ns"] <= answer["peer_sent_ns"] <= answer["received_ns"]
    rtt = sorted(answer["rtt_ns"] for answer in answers)
    assert summary["type"] == "summary"
    assert (summary["sent"], summary["acknowledged"], summary["lost"]) == (20, 20, 0)
    assert (summary["rtt_ns"]["n"], summary["rtt_ns"]["min"], summary["rtt_ns"]["max"]) == (20, rtt[0], rtt[-1])
    assert summary["rtt_ns"]["min"] <= summary["rtt_ns"]["p50"] <= summary["rtt_ns"]["p99"] <= rtt[-1]

    assert pong.records()[-1] | {"received": 20, "octets": 20 * 1024, "missing": 0} == pong.records()[-1]
    assert "gnb-1" in pong.err


def test_text(start: Start, endpoint: str) -> None:
    start("pong", "--listen", endpoint, "--node", "twin-1")
    ping = start("ping", "--connect", endpoint, "--count", "3", "--interval", "0.01")
    assert ping.code() == 0
    assert len([line for line in ping.out if line.startswith("64 B to twin-1: sequence ")]) == 3
    assert "3 sent, 3 answered, 0 lost" in "\n".join(ping.out)
    assert "n = 3, includes residence time at the peer" in ping.out[-2]
    assert "n = 3, without residence time at the peer" in ping.out[-1]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_no_peer(start: Start, endpoint: str, transport: str) -> None:
    ping = start("ping", "--transport", transport, "--connect", endpoint, "--timeout", "0.3")
    assert ping.code() == 1
    assert ping.out == []
    for part in ("no peer within 0.3 s", endpoint, "twinlink pong", "Connection refused"):
        assert part in ping.err


@pytest.mark.parametrize("command", ["ping --count 3", "pub --count 3", "clock --count 3"])
def test_a_script_gets_its_summary_though_nobody_was_there(start: Start, endpoint: str, command: str) -> None:
    run = start(*command.split(), "--connect", endpoint, "--timeout", "0.3", "--json")
    assert run.code() == 1
    (summary,) = run.records()
    assert (summary["type"], summary["transport"]) == ("summary", "zeromq")
    assert (summary["sent"], summary["acknowledged"], summary["lost"]) == (0, 0, 0)
    assert "no peer within 0.3 s" in run.err


def test_other_transport_at_the_other_side(start: Start, endpoint: str) -> None:
    """A zenoh listener hears garbage from zeromq: neither side fails or takes the other for a peer."""
    pong = start("pong", "--transport", "zenoh", "--listen", endpoint)
    pong.wait_for("Ctrl-C ends it")
    assert start("ping", "--connect", endpoint, "--timeout", "1").code() == 1
    pong.interrupt()
    assert pong.code() == 1


def test_port_in_use(start: Start, endpoint: str) -> None:
    start("pong", "--listen", endpoint).wait_for("Ctrl-C ends it")
    second = start("pong", "--listen", endpoint)
    assert second.code() == 2
    assert endpoint.rpartition(":")[2] in second.err


def test_interrupt_prints_the_summary(start: Start, endpoint: str) -> None:
    pong = start("pong", "--listen", endpoint)
    ping = start("ping", "--connect", endpoint, "--interval", "0.02")
    ping.wait_for("sequence 4", "out")
    ping.interrupt()
    assert ping.code() == 0
    assert " 0 lost" in "\n".join(ping.out[-3:])
    assert "rtt min/p50/p99/max" in ping.out[-1]
    pong.wait_for("is gone (closed)")
    pong.interrupt()
    assert pong.code() == 0
    assert pong.out[-1].startswith("answered ")


def test_a_second_signal_that_comes_with_the_first_is_the_same_wish(start: Start, endpoint: str) -> None:
    """`timeout -s INT` signals the process and its group.  Two of a kind may arrive as one; these are two, at once."""
    pong = start("pong", "--listen", endpoint)
    ping = start("ping", "--connect", endpoint, "--interval", "0.02")
    ping.wait_for("sequence 4", "out")
    pong.process.send_signal(signal.SIGSTOP)
    time.sleep(0.2)  # until answers are missing
    for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
        ping.process.send_signal(number)
    pong.process.send_signal(signal.SIGCONT)
    assert ping.code() in (0, 1)  # whether the last answers came, or were lost with a pong that was away
    assert "rtt min/p50/p99/max" in ping.out[-1]
    assert "interrupted" not in ping.err


def test_a_peer_that_takes_no_more_ends_it_with_a_summary(start: Start, endpoint: str) -> None:
    pong = start("pong", "--listen", endpoint)
    ping = start("ping", "--connect", endpoint, "--interval", "0.001", "--size", "1M", "--timeout", "5", "--json")
    ping.wait_for('"sequence": 4', "out")
    pong.process.send_signal(signal.SIGSTOP)
    try:
        assert ping.code() == 1
    finally:
        pong.process.send_signal(signal.SIGCONT)
    assert "has been full" in ping.err
    assert ping.records()[-1]["type"] == "summary"
    assert ping.records()[-1]["acknowledged"] >= 5


def test_interrupt_while_waiting_for_a_peer(start: Start, endpoint: str) -> None:
    ping = start("ping", "--listen", endpoint, "--timeout", "1000", "--json")
    ping.wait_for("waits up to 1000 s for a peer")
    ping.interrupt()
    assert ping.code() == 1
    assert [(record["type"], record["sent"], record["rtt_ns"]) for record in ping.records()] == [("summary", 0, None)]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_peer_killed(start: Start, endpoint: str, transport: str) -> None:
    pong = start("pong", "--transport", transport, "--listen", endpoint, "--node", "twin-1")
    ping = start("ping", "--transport", transport, "--connect", endpoint, "--interval", "0.05", "--json")
    ping.wait_for('"sequence": 2', "out")
    pong.process.kill()
    ping.wait_for("peer twin-1 is gone (silent)")
    ping.interrupt()
    assert ping.code() == 1
    summary = ping.records()[-1]
    assert summary["lost"] > 0
    assert summary["acknowledged"] == summary["rtt_ns"]["n"] >= 3


def test_several_pingers_on_one_listener(start: Start, endpoint: str) -> None:
    pong = start("pong", "--listen", endpoint, "--count", "30", "--json")
    pingers = [start("ping", "--connect", endpoint, "--count", "10", "--interval", "0", "--json") for _ in range(3)]
    assert [ping.code() for ping in pingers] == [0, 0, 0]
    assert pong.code() == 0
    assert pong.records()[-1]["received"] == 30


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_pong_writes_whole_lines_into_a_pipe(start: Start, endpoint: str, number: signal.Signals) -> None:
    read, write = os.pipe()
    pong = start("pong", "--listen", endpoint, stdout=write, stderr=write)
    os.close(write)
    with os.fdopen(read, "rb", buffering=0) as pipe:
        told = pipe.read(65536)  # while it runs: nothing waits in a buffer
        start("ping", "--connect", endpoint, "--count", "4", "--interval", "0.1").code()
        pong.process.send_signal(number)
        pong.process.wait(PATIENCE_S)
        told += pipe.read(65536) or b""
    lines = told.decode().splitlines(keepends=True)
    assert "answers flow ping and sweeps" in lines[0]
    assert all(line.endswith("\n") for line in lines)
