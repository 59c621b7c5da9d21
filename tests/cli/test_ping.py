import os
import signal
import time
from statistics import fmean, pstdev

import pytest

from tests.cli.calling import call
from tests.cli.running import PATIENCE_S, Start
from twinlink import Ack
from twinlink.cli.ping_statistics import PingStatistics, table

TRANSPORTS = ("zeromq", "zenoh")
SERIES = ["rtt", "without residence", "one-way delay, there", "one-way delay, back"]


@pytest.mark.parametrize(("transport", "pinger_listens"), [("zeromq", False), ("zenoh", True)])
def test_either_side_listens(start: Start, endpoint: str, transport: str, pinger_listens: bool) -> None:
    sides = ("--listen", "--connect") if pinger_listens else ("--connect", "--listen")
    common = ("--transport", transport, "--count", "20", "--json")
    pong = start("pong", *common, sides[1], endpoint, "--node", "twin-1")
    ping = start("ping", *common, sides[0], endpoint, "--node", "gnb-1", "--interval", "0", "--size", "1K")
    assert ping.code() == 0, (ping.out[-1], ping.err, pong.err)
    assert pong.code() == 0, pong.err

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
    head, *rows, bound = ping.out[-6:]
    assert head.split() == ["ms", "min", "mean", "p50", "p99", "max", "mdev"]
    assert [row[:22].strip() for row in rows] == SERIES
    assert "each one-way delay, is known to ±" in bound
    assert max(map(len, ping.out)) <= 80


@pytest.mark.parametrize("form", ["127.0.0.1:{port}", "localhost:{port}", "tcp/127.0.0.1:{port}"])
def test_a_host_and_short_options_as_ping_8_has_them(start: Start, endpoint: str, form: str) -> None:
    start("pong", "--listen", endpoint, "--node", "twin-1")
    host = form.format(port=endpoint.rpartition(":")[2])
    ping = start("ping", "-c", "3", "-i", "0.01", "-s", "64KB", "-q", host, "--json")
    assert ping.code() == 0
    (summary,) = ping.records()
    assert (summary["type"], summary["sent"], summary["octets"]) == ("summary", 3, 65536)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("10.0.0.5:no",), "argument HOST[:PORT]: endpoint"),
        (("10.0.0.5:70000",), "a port is a number from 1 to 65535"),
        (("",), "argument HOST[:PORT]: endpoint"),
        (("10.0.0.5", "--connect", "tcp/10.0.0.5:7447"), "HOST[:PORT]: not allowed with argument --connect"),
        (("10.0.0.5", "--listen", "tcp/0.0.0.0:7447"), "HOST[:PORT]: not allowed with argument --listen"),
        (("10.0.0.5", "10.0.0.6"), "unknown argument 10.0.0.6"),
        (("-s", "64 bytes"), "argument -s/--size: '64 bytes' is not a number of octets such as 100, 64KB or 1MB"),
    ],
)
def test_a_host_or_size_that_cannot_be(arguments: tuple[str, ...], expected: str) -> None:
    ping = call("ping", *arguments)
    assert ping.code() == 3
    assert expected in ping.err


def test_a_host_takes_precedence_over_the_environment(start: Start, endpoint: str) -> None:
    """Also over a side that the environment has for other commands."""
    host = endpoint.removeprefix("tcp/")
    ping = start("ping", host, "--timeout", "0.1", env={"TWINLINK_LISTEN": "tcp/127.0.0.1:1"})
    assert ping.code() == 1
    assert f"connecting to {endpoint}" in ping.err
    ping = start("ping", "--timeout", "0.1", env={"TWINLINK_CONNECT": endpoint})
    assert ping.code() == 1
    assert f"connecting to {endpoint}" in ping.err


def acks(offset_ns: int, delays_ns: list[tuple[int, int]], epoch: int = 1) -> list[Ack]:
    """Of messages 10 ms apart, with these delays there and back, 1 µs of residence, and the peer's clock ahead."""
    found = []
    for number, (there, back) in enumerate(delays_ns):
        t1 = 10**18 + 10_000_000 * number
        t2 = t1 + there + offset_ns
        t4 = t1 + there + 1000 + back
        found.append(Ack(number, t4 - t1, t1, t2, t2 + 1000, t4, epoch, "ping"))
    return found


def test_each_figure_is_that_of_its_definition() -> None:
    """One-way delays hold the truth within their bound, with two peers whose clocks differ from ours by seconds."""
    statistics = PingStatistics()
    there = [300_000, 100_000, 400_000, 100_000]
    back = [100_000, 100_000, 200_000, 800_000]
    for one in acks(5_000_000_000, list(zip(there, back, strict=True))):
        statistics.add(one)
    for one in acks(-7_000_000_000, [(100_000, 100_000)] * 2, epoch=2):
        statistics.add(one)
    figures = statistics.figures()
    rtt = [1000 + one + other for one, other in zip(there, back, strict=True)] + [201_000] * 2
    assert figures["rtt_ns"] | {"n": 6, "min": 201_000, "max": 901_000, "p99": 901_000} == figures["rtt_ns"]
    assert figures["rtt_ns"]["mean"] == round(fmean(rtt))
    assert figures["rtt_ns"]["mdev"] == round(pstdev(rtt))  # ping(8): of the population
    assert figures["rtt_without_residence_ns"]["max"] == 900_000
    bound = figures["one_way_bound_ns"]
    assert 100_000 <= bound < 120_000  # half of the least round trip, and what the clocks may drift
    for name, true in (("one_way_delay_ns", there), ("one_way_delay_back_ns", back)):
        assert figures[name]["n"] == 6
        assert abs(figures[name]["max"] - max(true)) <= bound
        assert abs(figures[name]["mean"] - fmean([*true, 100_000, 100_000])) <= bound
    assert all(len(line) <= 80 for line in table(figures))


def test_without_an_answer_there_is_no_figure() -> None:
    figures = PingStatistics().figures()
    assert set(figures.values()) == {None}
    assert table(figures) == []


def test_a_clock_set_during_every_exchange_leaves_the_round_trips() -> None:
    statistics = PingStatistics()
    for one in acks(0, [(-300_000, 100_000)] * 3):
        statistics.add(one)
    figures = statistics.figures()
    assert figures["one_way_delay_ns"] is figures["one_way_bound_ns"] is None
    assert "a clock was set" in table(figures)[-1]


def test_no_peer(endpoint: str) -> None:
    ping = call("ping", "--connect", endpoint, "--timeout", "0.3")
    assert ping.code() == 1
    assert ping.out == []
    for part in ("no peer within 0.3 s", endpoint, "twinlink pong", "Connection refused"):
        assert part in ping.err


@pytest.mark.parametrize("command", ["ping --count 3", "pub --count 3", "clock --count 3"])
def test_a_script_gets_its_summary_though_nobody_was_there(endpoint: str, command: str) -> None:
    run = call(*command.split(), "--connect", endpoint, "--timeout", "0.3", "--json")
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
    assert " 0 lost" in "\n".join(ping.out[-7:])
    assert [row[:22].strip() for row in ping.out[-5:-1]] == SERIES
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
    assert [row[:22].strip() for row in ping.out[-5:-1]] == SERIES
    assert "interrupted" not in ping.err


def test_a_peer_that_takes_no_more_ends_it_with_a_summary(start: Start, endpoint: str) -> None:
    pong = start("pong", "--listen", endpoint)
    ping = start("ping", "--connect", endpoint, "--interval", "0.00001", "--size", "1M", "--timeout", "5", "--json")
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
