import hashlib
import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.calling import call
from tests.cli.running import PATIENCE_S, Start, no_more_than_1000_octets


@pytest.mark.parametrize(("transport", "sender_listens"), [("zeromq", False), ("zenoh", True)])
def test_generated_messages_arrive_as_sent(start: Start, endpoint: str, transport: str, sender_listens: bool) -> None:
    sides = ("--listen", "--connect") if sender_listens else ("--connect", "--listen")
    sub = start("sub", "--transport", transport, sides[1], endpoint, "--print", "hash", "--count", "200")
    pub = start("pub", "--transport", transport, sides[0], endpoint, "--hash", "--count", "200", "--size", "100K")
    assert pub.code() == 0
    assert sub.code() == 0
    assert len(sub.out) == 200
    assert sub.out == pub.out
    assert "received 200 messages, 20,480,000 B; 0 did not arrive" in sub.err
    assert "sent 200 messages, 20,480,000 B; 200 acknowledged, 0 lost" in pub.err
    for said in (sub.err, pub.err):
        assert re.search(r"^twinlink \w+: in [0-9.]+ s: [0-9.]+ messages/s, [0-9.]+ MB/s$", said, re.MULTILINE)


def test_lines_of_stdin(start: Start, endpoint: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    long = 200_000 * "x"  # it comes in several parts
    lines.write_bytes(f"first\n\nünïcode\n{long}\n".encode() + b"\xff\x00\nno end of line")
    sub = start("sub", "--listen", endpoint, "--count", "6")
    with lines.open("rb") as stdin:
        pub = start("pub", "--connect", endpoint, stdin=stdin)
        assert pub.code() == 0
    assert pub.out[0] == "sent 6 messages, 200,030 B; 6 acknowledged, 0 lost"
    assert sub.code() == 0
    assert sub.out == ["first", "", "ünïcode", long, "\ufffd\x00", "no end of line"]


def test_files_and_output_directory(start: Start, endpoint: str, tmp_path: Path) -> None:
    contents = [b"", b"\n", random.Random(1).randbytes(3_000_000)]
    files = []
    for number, content in enumerate(contents):
        files.append(tmp_path / f"file-{number}")
        files[-1].write_bytes(content)
    sub = start("sub", "--listen", endpoint, "--count", "3", "--output", str(tmp_path / "deep" / "out"), "--json")
    pub = start("pub", "--connect", endpoint, *map(str, files))
    assert pub.code() == 0
    assert sub.code() == 0
    assert [path.read_bytes() for path in sorted((tmp_path / "deep" / "out").iterdir())] == contents
    *messages, summary = sub.records()
    assert [message["sha256"] for message in messages] == [hashlib.sha256(content).hexdigest() for content in contents]
    assert all(message["sent_ns"] <= message["received_ns"] for message in messages)
    assert (summary["type"], summary["received"], summary["missing"]) == ("summary", 3, 0)


def test_stored_messages_are_not_printed_too(start: Start, endpoint: str, tmp_path: Path) -> None:
    sub = start("sub", "--listen", endpoint, "--count", "1", "--output", str(tmp_path))
    assert start("pub", "--connect", endpoint, "--count", "1", "--size", "5").code() == 0
    assert sub.code() == 0
    assert sub.out == ["received 1 messages, 5 B; 0 did not arrive"]


def test_rate_and_goodput_follow_from_time_and_octets(start: Start, endpoint: str) -> None:
    """At the receiver from the first message to the last, without the first one's octets."""
    sub = start("sub", "--listen", endpoint, "--count", "20", "--print", "none", "--json")
    pub = start("pub", "--connect", endpoint, "--count", "20", "--size", "1KB", "--interval", "0.01", "--json")
    assert (pub.code(), sub.code()) == (0, 0)
    for run, counted in ((pub, 20), (sub, 19)):
        summary = run.records()[-1]
        elapsed_s = summary["elapsed_ns"] / 1e9
        assert summary["rate_hz"] * elapsed_s == pytest.approx(counted)
        assert summary["goodput_mb_s"] * elapsed_s == pytest.approx(counted * 1024 / 1e6)


def test_without_a_peer_there_is_no_rate(endpoint: str) -> None:
    pub = call("pub", "--connect", endpoint, "--count", "3", "--timeout", "0.1", "--json")
    assert pub.code() == 1
    assert (pub.records()[-1]["rate_hz"], pub.records()[-1]["goodput_mb_s"]) == (None, None)


def test_hex_and_idle(start: Start, endpoint: str) -> None:
    """One message, so that no pause between two, on however busy a machine, can be taken for the end."""
    sub = start("sub", "--listen", endpoint, "--print", "hex", "--idle", "0.2")
    assert start("pub", "--connect", endpoint, "--count", "1", "--size", "4").code() == 0
    assert sub.code() == 0
    assert sub.out == [random.Random(0).randbytes(4).hex()]


def test_flows_do_not_mix(start: Start, endpoint: str) -> None:
    """Also where one name begins with another."""
    sub = start("sub", "--listen", endpoint, "--flow", "a", "--count", "1", "--print", "none", "--json")
    start("pub", "--connect", endpoint, "--flow", "ab", "--count", "1", "--size", "7")
    sub.wait_for("is up")
    assert start("pub", "--connect", endpoint, "--flow", "a", "--count", "1", "--size", "5").code() == 0
    assert sub.code() == 0
    assert sub.records()[-1]["octets"] == 5


@pytest.mark.parametrize("command", ["pub", "sub"])
def test_a_full_disk_is_said(start: Start, endpoint: str, command: str) -> None:
    with Path("/dev/full").open("wb") as full:
        other = "pub" if command == "sub" else "sub"
        sides = {"sub": ("--listen", endpoint), "pub": ("--connect", endpoint)}
        extra = {"sub": ("--count", "3"), "pub": ("--count", "3")}
        start(other, *sides[other], *extra[other])
        run = start(command, *sides[command], *extra[command], stdout=full)
        assert run.code() == 2
    assert "standard output cannot be written: No space left on device" in run.err


def test_a_reader_that_leaves_is_no_error(start: Start, endpoint: str) -> None:
    read, write = os.pipe()
    sub = start("sub", "--listen", endpoint, stdout=write)
    os.close(write)
    head = subprocess.Popen(["head", "-n", "1"], stdin=read, stdout=subprocess.PIPE)
    os.close(read)
    pub = start("pub", "--connect", endpoint, "--count", "1000", "--size", "10", "--interval", "0.005")
    head.communicate(timeout=PATIENCE_S)
    assert sub.code() == 0
    pub.interrupt()
    pub.code()
    assert [line for line in sub.err.splitlines() if "peer" not in line and "Ctrl-C" not in line] == []


def test_a_file_that_does_not_fit_is_not_there(start: Start, endpoint: str, tmp_path: Path) -> None:
    sub = start("sub", "--listen", endpoint, "--output", str(tmp_path / "out"), preexec_fn=no_more_than_1000_octets)
    start("pub", "--connect", endpoint, "--count", "1", "--size", "1001")
    assert sub.code() == 2
    assert "-00000000.bin: File too large; make room there, or write elsewhere" in sub.err
    assert list((tmp_path / "out").iterdir()) == []


def test_what_cannot_be_read_or_written(start: Start, endpoint: str, tmp_path: Path) -> None:
    (tmp_path / "in-the-way").write_text("")
    sub = start("sub", "--listen", endpoint, "--output", str(tmp_path / "in-the-way" / "out"))
    assert sub.code() == 2
    assert "in-the-way" in sub.err
    for name, why in (("absent", "No such file or directory"), ("", "Is a directory")):
        pub = start("pub", "--connect", endpoint, str(tmp_path / name))
        assert pub.code() == 2
        assert f"{tmp_path / name}: {why}; check the path" in pub.err
        assert "for a peer" not in pub.err


def test_too_large(start: Start, endpoint: str) -> None:
    start("sub", "--listen", endpoint)
    with Path("/dev/zero").open("rb") as endless:
        assert start("pub", "--connect", endpoint, stdin=endless).code() == 2


def test_no_peer(endpoint: str) -> None:
    pub = call("pub", "--connect", endpoint, "--count", "1", "--timeout", "0.3")
    assert pub.code() == 1
    assert "twinlink sub" in pub.err


def test_receiver_killed(start: Start, endpoint: str) -> None:
    sub = start("sub", "--listen", endpoint, "--node", "twin-1", "--print", "hash")
    pub = start("pub", "--connect", endpoint, "--count", "100000", "--interval", "0.01", "--json")
    sub.wait_for("50 100 ", "out")  # so many that acks of the first have come, whatever is held up
    sub.process.kill()
    pub.wait_for("peer twin-1 is gone (silent)")
    pub.interrupt()
    assert pub.code() == 1
    summary = pub.records()[-1]
    assert summary["lost"] == summary["sent"] - summary["acknowledged"] > 0
    assert summary["acknowledged"] > 0  # the ack of the last one printed may have died with it


def test_sender_killed(start: Start, endpoint: str) -> None:
    """The receiver says so, stays, and takes the next one."""
    sub = start("sub", "--listen", endpoint, "--count", "2", "--flow", "data", "--idle", "60")
    reader, writer = os.pipe()
    first = start("pub", "--connect", endpoint, "--node", "gnb-1", stdin=reader)
    os.write(writer, b"before\n")
    sub.wait_for("before", "out")
    first.process.kill()
    os.close(reader)
    os.close(writer)
    sub.wait_for("peer gnb-1 is gone (silent)")
    assert start("pub", "--connect", endpoint, "--count", "1", "--size", "0", "--node", "gnb-1").code() == 0
    assert sub.code() == 0
    assert sub.out == ["before", ""]


@pytest.mark.parametrize("waits_for", ["peer", "stdin"])
def test_interrupt(start: Start, endpoint: str, waits_for: str) -> None:
    reader, writer = os.pipe()
    sub = start("sub", "--listen", endpoint, "--node", "twin-1")
    sub.wait_for("Ctrl-C ends it")
    if waits_for == "stdin":
        pub = start("pub", "--connect", endpoint, stdin=reader)
        os.write(writer, b"one\ntwo\n")
        sub.wait_for("two", "out")
        pub.interrupt()
        assert pub.code() == 0
        assert pub.out[0] == "sent 2 messages, 6 B; 2 acknowledged, 0 lost"
        sub.wait_for("is gone (closed)")
    sub.interrupt()
    assert sub.code() == (0 if waits_for == "stdin" else 1)
    assert f"received {2 if waits_for == 'stdin' else 0} messages" in sub.err
    os.close(reader)
    os.close(writer)


def test_terminated_like_interrupted(start: Start, endpoint: str) -> None:
    sub = start("sub", "--listen", endpoint, "--json")
    sub.wait_for("Ctrl-C ends it")
    sub.process.terminate()
    assert sub.code() == 1
    assert sub.records()[-1]["type"] == "summary"


def test_an_interruption_before_the_end_is_reported(start: Start, endpoint: str) -> None:
    sub = start("sub", "--listen", endpoint, "--json", "--count", "1000")
    pub = start("pub", "--connect", endpoint, "--json", "--count", "1000", "--interval", "0.1")
    sub.wait_for('"sequence": 3', "out")
    pub.process.terminate()
    assert pub.code() == 1
    sub.process.terminate()
    assert sub.code() == 1
    sent, received = pub.records()[-1], sub.records()[-1]
    assert sent["interrupted"]
    assert received["interrupted"]
    assert sent["sent"] == sent["acknowledged"] == received["received"] < 1000
    assert f"interrupted: {sent['sent']} of 1000 messages were sent" in pub.err
    assert f"interrupted: {sent['sent']} of 1000 messages were received" in sub.err


def test_a_file_that_is_too_long_is_not_read(endpoint: str, tmp_path: Path) -> None:
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.truncate(2**40)  # a hole
    pub = call("pub", "--connect", endpoint, str(path))
    assert pub.code() == 3
    assert f"{path} has {2**40} octets, and a message of this link at most 16777216: `split -b" in pub.err
    assert "for a peer" not in pub.err
    pub = call("pub", "--connect", endpoint, "--option", "max_payload=10", __file__)
    assert pub.code() == 3
    assert "at most 10: `split -b 10" in pub.err
