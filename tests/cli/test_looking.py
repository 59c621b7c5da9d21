"""`twinlink list`, `top` and `sub` at one end of a real link, `twinlink bench`, and how payloads are shown."""

import os
import pty
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import twinlink
from tests.cli.running import Start
from twinlink import npy, signed_payload
from twinlink.appkit.console import rendered
from twinlink.appkit.mgen_message import Address, Packet
from twinlink.cli import known_flows
from twinlink.cli.looking import fitted, seen_from_here, table_of
from twinlink.cli.payload_line import HEAD_OCTETS, payload_format, payload_line
from twinlink.cli.sub import Columns, message_line
from twinlink.events import Event, PeerDown, PeerUp
from twinlink.sensing import FreeRange, SensingRanges
from twinlink.slots import Slot, SlotSpectrum
from twinlink.spectrum import Spectrum
from twinlink.testing import free_endpoint, patience, wait_until

LOUD = np.full((24, 2), 10, np.int16)
LOUD[12:] = 100  # PRB 1: 43 dB; the mean of both 40 dB
SLOT = Slot(np.zeros((2, 3, 24, 2), np.int16), 512, 7, 0b111, 1, missing=4)
SLOTS = SlotSpectrum(106, 10, 2, (0, 1), 30_000, 3.6e9, 1.0, slots=(SLOT,))
PACKET = Packet(100, 0, 3, 5, 1_000_000_000, Address("10.0.0.2", 5000))
SIGNED = signed_payload.UNSIGNED_HEAD.pack(b"tS", 1, b"k" * 8, b"a" * 16, 1, 2, 9) + bytes(64)
JSON = b'{"snr_db":21.5}'


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another than that of the user."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


SHOWN = [
    (npy.encode(np.arange(3, dtype=np.float32)), "array", "array float32 (3,): 0 1 2"),
    (npy.encode(np.full((4, 4), 1 - 2j)), "array", "array complex128 (4, 4): " + "1-2j " * 8 + "..."),
    (npy.encode(np.array([b"\x1b[2J" * 30])), "array", "array (1,) of 120 octets each"),
    (npy.encode(np.arange(3))[:-1], "array", "151 octets: 93 4e 55"),  # cut off
    (
        Spectrum(LOUD, 2, 30_000, 3.6e9, 1, symbol=7).encode(),
        "spectrum",
        "spectrum 2 PRBs, 30 kHz at 3.6 GHz, symbol 7, mean 40.0 dB, peak 43.0 dB in PRB 1",
    ),
    (
        SLOTS.encode(),
        "slots",
        "slots 1 from 512.7, 3 symbols, 2 antennas, PRBs 10 to 11 of 106, 30 kHz at 3.6 GHz, I/Q, 4 missing",
    ),
    (SensingRanges(5, 6, (FreeRange(0, 1, 2, 3),), 1).encode(), "sensing", "sensing slot 5.6, 1 free ranges"),
    (b"\x01" + PACKET.serialize(), "MGEN", "MGEN UDP flow 3, sequence 5, 100 octets to 10.0.0.2:5000"),
    (SIGNED + JSON, "signed", f"signed (number 9, not verified here) {JSON.decode()}"),
    (SIGNED * 200 + JSON, "octets", f"{len(SIGNED) * 200 + len(JSON):,} octets: 74 53 01"),  # too long for one
    (JSON, "JSON", JSON.decode()),
    (b"[INFO] up", "text", "[INFO] up"),
    ("\x1b[31mün\nï".encode(), "text", r"\x1b[31mün\nï"),
    (b"a" * (HEAD_OCTETS - 1) + "ü".encode() * 4000, "text", "a" * (HEAD_OCTETS - 1) + "ü"),  # cut within a letter
    (b"\xff\x00", "octets", "2 octets: ff 00"),
    (b"\0", "octets", "1 octet: 00"),
    (b"", "empty", ""),
]


@pytest.mark.parametrize(("payload", "expected_format", "line"), SHOWN)
def test_a_payload_as_a_line(payload: bytes, expected_format: str, line: str) -> None:
    assert payload_format(payload[:HEAD_OCTETS], len(payload)) == expected_format
    shown = payload_line(memoryview(payload))
    assert shown.startswith(line)
    assert shown.isprintable()


def test_what_only_looks_like_a_format_is_shown_as_what_it_is() -> None:
    generator = np.random.default_rng(0)
    for payload, _, _ in SHOWN:
        for end in generator.integers(0, len(payload) + 1, 20):
            noise = bytearray(payload[:end])
            if noise:
                noise[generator.integers(len(noise))] ^= 0xFF
            assert payload_line(bytes(noise)).isprintable()
            payload_format(bytes(noise[:HEAD_OCTETS]), len(noise))


def test_on_a_terminal_the_payloads_of_several_flows_stand_below_each_other() -> None:
    columns, long_name = Columns(), "log-of-the-scheduler-of-cell-7"
    told = [("control", 9, 1), (long_name, 1, 250), ("telemetry", 100, 25), ("control", 10, 1)]
    lines = [
        message_line(twinlink.Message(b"hello", flow, number, 7, "gnb-1", 0, delay_ms * 10**6), columns)
        for flow, number, delay_ms in told
    ]
    assert lines[1].startswith(f"{long_name} gnb-1 #1 ")
    assert lines[2].index("hello") == lines[3].index("hello") < lines[1].index("hello")


def test_it_is_said_what_cannot_be_seen() -> None:
    alone, hub = {"node": "twin-1", "unseen": 0}, {"node": "hub", "unseen": 2}

    def told(listening: bool, *peers: dict[str, object], mirror: str | None = None, **counts: int) -> str:
        counters = {"unseen": 0, "unreadable": 0} | counts
        return seen_from_here(listening, {"peers": list(peers), "mirror": mirror, **counters})

    assert told(False, alone) == "Seen from here: what twin-1 sends to all."
    assert told(True, alone, {"node": "b", "unseen": 0}).endswith("what twin-1 and b send to this side.")
    assert "hub hears 2 more peers, whose messages go to it alone; its --mirror" in told(False, hub)
    assert told(False, hub, mirror="hub") == "Seen by the mirror of hub: what it sends, and what it receives."
    assert "30 messages did not get here" in told(False, hub, mirror="hub", unseen=30)
    assert "2 messages of the mirror could not be read" in told(False, hub, mirror="hub", unreadable=2)


def test_a_table_that_is_too_long_for_the_terminal_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "5")
    assert fitted("1\n2\n3\n4") == "1\n2\n3\n4"
    assert fitted("1\n2\n3\n4\n5").splitlines() == ["1", "2", "3", "... 2 more lines; `twinlink list` shows all"]


def test_list_and_top_from_one_end(start: Start, endpoint: str) -> None:
    """What the listener sends is seen, also a flow at rest; of what a connector sends only that there is one."""
    with (
        twinlink.open("zeromq", listen=endpoint, node="gnb-1") as gnb,
        twinlink.open("zeromq", connect=endpoint, node="twin-1") as twin,
    ):
        gnb.wait_ready(patience())
        twin.wait_ready(patience())
        gnb.sender("at-rest").send(b"once")
        twin.sender("control").send(b"hidden")
        telemetry, text = gnb.sender("telemetry"), endpoint.removeprefix("tcp/")
        shown = start("list", text, "--time", "0.5")
        record = start("list", text, "--time", "0.5", "--json")
        once = start("top", text, "--once", "--interval", "0.5", "--json")
        while any(run.process.poll() is None for run in (shown, record, once)):
            telemetry.send({"snr_db": 21.5})
            time.sleep(0.02)
        assert [run.code() for run in (shown, record, once)] == [0, 0, 0]

    assert max(map(len, shown.out[:-1])) <= 80
    assert any(re.match(r"at-rest +gnb-1 +- +1 +0 ", line) for line in shown.out)
    assert any(re.match(r"telemetry gnb-1 +JSON +\d+ +\d", line) for line in shown.out)
    assert "gnb-1 hears " in shown.out[-1]
    for one in (record.records()[-1], once.records()[0]):
        flows = {row["flow"]: row for row in one["flows"]}
        assert flows.keys() == {"at-rest", "telemetry"}
        assert (flows["at-rest"]["messages"], flows["at-rest"]["rate_hz"], flows["at-rest"]["age_ns"]) == (1, 0, None)
        row = flows["telemetry"]
        assert (row["node"], row["format"], row["octets"], row["lost"]) == ("gnb-1", "JSON", 15, 0)
        assert row["rate_hz"] * 15 / 1e6 == pytest.approx(row["goodput_mb_s"])
        assert row["messages"] > 1
        (peer,) = one["peers"]
        assert (peer["node"], peer["state"]) == ("gnb-1", "up")
        assert peer["unseen"] >= 1
    assert known_flows.path().read_text().split() == ["at-rest", "telemetry"]
    assert "twin-1" not in "".join(shown.out)


@pytest.mark.parametrize(("columns", "gap"), [(30, 1), (41, 2), (80, 1), (200, 1)])
def test_a_terminal_of_any_width_shows_whose_figures_they_are(
    columns: int, gap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rich gives the room of the names to the figures, and cuts these."""
    master, terminal = pty.openpty()
    monkeypatch.setenv("COLUMNS", str(columns))
    with os.fdopen(master, "rb"), os.fdopen(terminal, "w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        table = table_of("key", "column", "set by", "age s", "ends in s", words=3)
        table.padding = 0, gap, 0, 0
        table.add_row("cell-1", "desired", "twin-1", "123.456", "0.123456")
        shown = rendered(table)
    assert max(map(len, shown.splitlines())) <= columns
    assert {"cell-1", "desired", "twin-1", "123.456", "0.123456"} <= set(re.split("[ ,:\n]+", shown))


def test_a_terminal_that_reads_nothing_holds_up_no_flow(start: Start, endpoint: str) -> None:
    """Of several flows; Ctrl-C ends it all the same, and it says how much was not shown."""
    master, terminal = pty.openpty()
    with twinlink.open("zeromq", listen=endpoint, node="gnb-1", send_timeout=patience()) as gnb:
        sub = start("sub", endpoint.removeprefix("tcp/"), "*", stdout=terminal)
        gnb.wait_ready(patience())
        senders = gnb.sender("text"), gnb.sender("array")
        senders[0].send("\x1b[2J")
        wait_until(lambda: b"#0" in os.read(master, 4096))
        for number in range(3000):
            senders[0].send(f"line {number}")
            senders[1].send_array(np.zeros(3))
        for sender in senders:
            sender.flush(patience())
        wait_until(lambda: not any(sender.stats()["in_flight_octets"] for sender in senders))  # it is done with them
        assert b"\x1b" not in os.read(master, 4096)
        sub.interrupt()
        assert sub.code() == 0
    (found,) = re.findall(r"received 6,001 messages, [\d,]+ B; 0 did not arrive, (\d+) were not shown", sub.err)
    assert 3000 < int(found) < 6001
    os.close(terminal)
    os.close(master)


def test_a_pipe_gets_every_message_of_several_flows(start: Start, endpoint: str) -> None:
    with twinlink.open("zeromq", listen=endpoint, node="gnb-1", send_timeout=patience()) as gnb:
        sub = start("sub", endpoint.removeprefix("tcp/"), "a*", "c", "--count", "4000")
        gnb.wait_ready(patience())
        for number in range(2000):
            for flow in ("a1", "b", "a2" if number % 2 else "c"):
                gnb.sender(flow).send(f"{flow} {number}")
        assert sub.code() == 0
    for flow, numbers in {"a1": range(2000), "a2": range(1, 2000, 2), "c": range(0, 2000, 2)}.items():
        assert [line for line in sub.out if line.startswith(flow)] == [f"{flow} {number}" for number in numbers]
    assert "found flow a2" in sub.err


def test_a_flow_that_brings_nothing_is_answered_with_those_that_there_are(start: Start, endpoint: str) -> None:
    with twinlink.open("zeromq", listen=endpoint, node="gnb-1") as gnb:
        gnb.sender("telemetry").send({"snr_db": 21.5})
        sub = start("sub", endpoint.removeprefix("tcp/"), "telemtry")
        sub.wait_for("nothing has come on flow telemtry; the peers send on telemetry; did you mean telemetry?")
        sub.interrupt()
        assert sub.code() == 1


def test_ctrl_z_leaves_the_link_before_the_process_stops(start: Start, endpoint: str) -> None:
    events: list[Event] = []
    with twinlink.open("zeromq", listen=endpoint, node="gnb-1") as gnb:
        gnb.events(handler=events.append)
        run = start("top", endpoint, "--interval", "0.2")
        run.wait_for("1 peer up", "out")
        run.process.send_signal(signal.SIGTSTP)
        wait_until(lambda: any(isinstance(event, PeerDown) and event.reason == "closed" for event in events))
        while sum(isinstance(event, PeerUp) for event in events) < 2:
            run.process.send_signal(signal.SIGCONT)  # as `fg` does; when it stops after its bye is not known
            time.sleep(0.05)
        run.interrupt()
        assert run.code() == 0


def test_bench_in_one_line(start: Start, endpoint: str) -> None:
    start("pong", "--listen", endpoint, "--node", "twin-1").wait_for("Ctrl-C ends it")
    text = start("bench", endpoint, "--time", "0.3", "--size", "10K")
    record = start("bench", endpoint, "--time", "0.3", "--json")
    assert (text.code(), record.code()) == (0, 0)
    number = r"[\d.]+"
    line = (
        rf"twin-1: {number} [kMG]bit/s in messages of 10 KB, 0 lost; RTT min {number}, p50 {number}, .* max {number} ms"
    )
    assert re.fullmatch(line, "\n".join(text.out))
    (summary,) = record.records()
    assert (summary["octets"], summary["lost"], summary["peers"]) == (65536, 0, ["twin-1"])
    seconds = summary["elapsed_ns"] / 1e9
    assert summary["goodput_mb_s"] * seconds == pytest.approx(summary["acknowledged"] * 65536 / 1e6)
    assert 0 < summary["rtt_ns"]["min"] <= summary["rtt_ns"]["p99"]


def test_bench_without_a_pong_says_what_must_run(start: Start, endpoint: str) -> None:
    """A link acknowledges also what no program takes: that is no throughput."""
    absent = start("bench", free_endpoint(), "--timeout", "0.1")
    with twinlink.open("zeromq", listen=endpoint, node="gnb-1"):
        other = start("bench", endpoint)
        assert other.code() == 1
    assert "no program there takes flow ping: run `twinlink pong` there" in other.err
    assert absent.code() == 1
    assert "does `twinlink pong` run there?" in absent.err
