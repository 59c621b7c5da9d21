import json
import re
import signal
import time

import pytest
from twinlink_measure.clock_command import _by_ntp, _times_set

import twinlink
from tests.cli.calling import call
from tests.cli.running import PATIENCE_S, Run, Start
from twinlink.appkit import formatting
from twinlink.testing import free_endpoint

TRANSPORTS = ("zeromq", "zenoh")


def test_both_sides_see_one_clock(start: Start) -> None:
    """On one host the offset is 0, and each side states it within its bound, whichever side listens."""
    pairs = []
    for transport in TRANSPORTS:  # at the same time, as they mostly wait
        for sides in (("--listen", "--connect"), ("--connect", "--listen")):
            endpoint = free_endpoint()
            common = ("clock", "--transport", transport, "--interval", "0.2", "--json")
            other = start(*common, sides[1], endpoint, "--node", "twin-1")
            pairs.append((start(*common, sides[0], endpoint, "--node", "gnb-1"), other))
    for one, other in pairs:
        see_one_clock(one, other)


def see_one_clock(one: Run, other: Run) -> None:
    for run in (one, other):
        run.wait_for('"both_began": true', "out")  # however late the other side is with its first rows
    one.interrupt()
    assert one.code() == 0, one.err
    other.wait_for("is gone (closed)")
    other.interrupt()
    assert other.code() in (0, 1), other.err  # after the other left it may have had rows without an answer
    for run, node in ((one, "twin-1"), (other, "gnb-1")):
        *rows, summary = run.records()
        rows = [row for row in rows if row["node"] == node]
        assert rows
        for row in rows:
            assert row["type"] == "clock"
            assert abs(row["offset_ns"]) <= row["bound_ns"], row
            assert row["bound_ns"] > 0
            assert row["rtt_without_residence_min_ns"] > 0
            assert (row["negative"], row["steps"], row["ntp"], row["by_ntp"]) == (0, [], None, None)
        assert summary["type"] == "summary"
        assert summary["peers"][0] | {"node": node, "offset_ns": rows[-1]["offset_ns"]} == summary["peers"][0]
        assert (summary["sent"] - summary["acknowledged"]) == summary["lost"]
    rows = one.records()
    assert (rows[-1]["rows"], rows[-1]["lost"]) == (len(rows) - 1, 0)


def test_pong_answers_too(start: Start, endpoint: str) -> None:
    start("pong", "--listen", endpoint, "--node", "twin-1")
    clock = start("clock", "--connect", endpoint, "--count", "3", "--interval", "0.1")
    assert clock.code() == 0
    rows = [line for line in clock.out if line.startswith("twin-1: offset ")]
    assert len(rows) == 3
    assert re.match(
        r"twin-1: offset [+-]\d{1,3}(\.\d{1,3}( \d{1,3})*)? (ns|µs|ms|s) ± \d{1,4}(\.\d+)? (ns|µs|ms), ", rows[0]
    )
    assert "skew " in rows[0]
    assert "3 rows" in clock.out[-2]
    assert clock.out[-1].startswith("last: twin-1: offset ")


def test_nothing_that_a_peer_tells_stops_it(start: Start, endpoint: str) -> None:
    """Its rows come from its own exchanges then."""
    most = 2**63 - 1
    with twinlink.open("zeromq", listen=endpoint, node="twin-1") as peer:
        notes, tells = peer.receiver("ping"), peer.sender("ping")
        clock = start("clock", "--connect", endpoint, "--count", "5", "--interval", "0.1", "--json")
        first = notes.receive(PATIENCE_S)
        assert first is not None
        wild: list[object] = [
            [[most] * 3, [-most - 1] * 3, [0] * 3, [1] * 3],
            [[0], [most], [most], [0]],
            [[10**400]] * 4,
            [["a"]] * 4,
            [[1, 2], [3]],
            {"a": 1},
            7,
        ]
        for exchanges in wild:
            ntp = {"offset_ns": 10**400, "bound_ns": "?"}
            note = {"clock": {"ntp": ntp, "quickest": {f"{first.epoch:016x}": exchanges}}}
            tells.send(json.dumps(note).encode())
        tells.send(b"{" * 4000)
        assert clock.code() == 0, clock.err
    rows = clock.records()
    assert [row["type"] for row in rows] == ["clock"] * 5 + ["summary"]
    assert not rows[4]["both_began"]
    assert abs(rows[4]["offset_ns"]) <= rows[4]["bound_ns"]


def test_interrupt_prints_the_summary(start: Start, endpoint: str) -> None:
    start("pong", "--listen", endpoint, "--node", "twin-1")
    clock = start("clock", "--connect", endpoint, "--interval", "0.05")
    clock.wait_for("twin-1: offset", "out")
    clock.interrupt()
    assert clock.code() == 0, (clock.out, clock.err)
    assert "exchanges answered" in "\n".join(clock.out[-2:])


def test_a_second_interrupt_ends_it_at_once(start: Start, endpoint: str) -> None:
    """Though it still waits for an answer: a minute, however soon the pong that is stopped counts as gone."""
    pong = start("pong", "--listen", endpoint)
    clock = start("clock", "--connect", endpoint, "--interval", "0.05", "--timeout", str(PATIENCE_S))
    clock.wait_for(": offset", "out")
    pong.process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)  # until an answer is missing
    clock.interrupt()
    time.sleep(3)  # far more than makes two signals one wish, as a busy machine may bring the first one late
    assert clock.process.poll() is None
    clock.interrupt()
    assert clock.code() == 2
    assert "interrupted" in clock.err
    assert "exchanges answered" not in "\n".join(clock.out)


def test_a_peer_that_goes_is_told(start: Start, endpoint: str) -> None:
    pong = start("pong", "--listen", endpoint, "--node", "twin-1")
    pong.wait_for("Ctrl-C ends it")
    # So long it waits for the pong, and for the answer that will not come.
    clock = start("clock", "--connect", endpoint, "--interval", "0.05", "--timeout", "10", "--json")
    clock.wait_for('"node": "twin-1"', "out")
    pong.process.kill()
    clock.wait_for("peer twin-1 is gone (silent)")
    clock.interrupt()
    assert clock.code() == 1
    assert clock.records()[-1]["peers"][0]["node"] == "twin-1"


def test_no_peer(start: Start, endpoint: str) -> None:
    clock = start("clock", "--connect", endpoint, "--timeout", "0.3")
    assert clock.code() == 1
    assert clock.out == []
    for part in ("no peer within 0.3 s", endpoint, "twinlink clock", "Connection refused"):
        assert part in clock.err


def test_an_ntp_server_that_does_not_answer_is_told_in_each_row(start: Start, endpoint: str) -> None:
    """And does not keep the link's own figures from coming."""
    server = endpoint.removeprefix("tcp/")  # no server has this port of UDP
    start("pong", "--listen", endpoint, "--node", "twin-1")
    clock = start("clock", "--connect", endpoint, "--count", "2", "--interval", "0.1", "--ntp", server, "--json")
    assert clock.code() == 0
    rows = clock.records()
    assert [row["type"] for row in rows] == ["clock", "clock", "summary"]
    for row in rows[:2]:
        assert row["bound_ns"] > 0
        assert row["ntp"]["server"] == server
        assert row["ntp"]["error"]
        assert row["by_ntp"] is None


@pytest.mark.parametrize("server", ["host:port", ":123", "host:70000"])
def test_wrong_ntp_server(endpoint: str, server: str) -> None:
    clock = call("clock", "--connect", endpoint, "--ntp", server)
    assert clock.code() == 3
    assert f"argument --ntp: {server!r}" in clock.err


@pytest.mark.parametrize("offset_ns", [2**63, -(10**400), "1", None, 1.5])
def test_a_peer_whose_view_of_ntp_is_no_time_has_none(offset_ns: object) -> None:
    ours = {"offset_ns": 5, "bound_ns": 2}
    assert _by_ntp(ours, {"offset_ns": 3, "bound_ns": 1}) == {"offset_ns": 2, "bound_ns": 3}
    assert _by_ntp(ours, {"offset_ns": offset_ns, "bound_ns": 1}) is None


@pytest.mark.parametrize(
    ("offset_ns", "bound_ns", "text"),
    [
        (-4_999_812_345, 24_695, "-4.999 812 3 s ± 24.7 µs"),
        (12_345_678, 812_345, "+12.346 ms ± 812 µs"),
        (250_000_000, 1_036, "+250.000 00 ms ± 1.04 µs"),
        (3_000, 24_700_000, "+0.0 ms ± 24.7 ms"),
        (0, 41, "+0 ns ± 41 ns"),
        (2**63 - 1, 5, "+9223372036.854 775 807 s ± 5 ns"),
    ],
)
def test_an_offset_is_told_as_finely_as_its_bound(offset_ns: int, bound_ns: int, text: str) -> None:
    assert formatting.within(offset_ns, bound_ns) == text


def test_a_clock_that_was_set_once() -> None:
    assert [_times_set(number) for number in range(3)] == ["", "; a clock was set 1 time", "; a clock was set 2 times"]
