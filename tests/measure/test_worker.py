"""The worker process: commands and answers by lines, and its end without a peer."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from twinlink_measure import send_modes
from twinlink_measure.channels import PeerLost, tcp
from twinlink_measure.remote import TOLD, Remote, RemoteWorker, WorkerHost
from twinlink_measure.row_buffer import PART_OCTETS, ReceivedRows, SentRows, decode, encode
from twinlink_measure.worker_handle import LocalWorker, WorkerFailed, WorkerLost
from twinlink_results.run import received_table, sent_table

import twinlink
from tests.cli.running import PATIENCE_S
from twinlink.process.ports import free_ports
from twinlink.testing.base import wait_until
from twinlink.transports import Endpoint


@pytest.fixture
def worker() -> Iterator[LocalWorker]:
    made = LocalWorker("Real World")
    yield made
    made.end()


def open_at(worker: LocalWorker, **changed: object) -> dict[str, object]:
    command = {"subject": "raw-tcp", "listening": True, "host": "127.0.0.1", "port": free_ports(2), "node": "test"}
    return worker.ask("open", PATIENCE_S, None, **(command | changed))


def test_it_tells_what_it_runs_on(worker: LocalWorker) -> None:
    system = worker.ask("system", PATIENCE_S)["system"]
    assert system["python"] == sys.version.split()[0]
    assert system["kernel"] == os.uname().release


@pytest.mark.parametrize(
    ("what", "arguments", "told"),
    [
        ("dance", {}, "no command is called 'dance'"),
        ("reflect", {"octets": 1, "count": 1}, "nothing is open here"),
        ("open", {}, "missing"),
        ("mark", {}, "nothing is open here"),
    ],
)
def test_what_it_cannot_do_it_says(worker: LocalWorker, what: str, arguments: dict[str, int], told: str) -> None:
    with pytest.raises(WorkerFailed, match=told):
        worker.ask(what, PATIENCE_S, None, **arguments)
    assert worker.ask("system", PATIENCE_S)  # and goes on


def test_a_pong_goes_on_after_whatever_comes_on_its_flow() -> None:
    endpoint = "tcp/pong:7447"
    with twinlink.open("memory", listen=endpoint) as pong, twinlink.open("memory", connect=endpoint) as stranger:
        host = WorkerHost(pong)
        try:
            stranger.wait_ready(PATIENCE_S)
            for line in (b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"end": 1}', b'{"id": 1, "do": "system"}'):
                stranger.sender(TOLD).send(b"0123456789abcdef" + line)
            remote = Remote(stranger)
            worker = RemoteWorker("Digital Twin", remote)
            assert worker.ask("system", PATIENCE_S)["system"]
            remote.send(worker._own + b"[" * 100_000)
            assert worker.ask("system", PATIENCE_S)["system"]
            worker.end()
        finally:
            host.close()


def test_a_subject_that_cannot_be_had_is_told_from_one_that_fails(worker: LocalWorker) -> None:
    with pytest.raises(WorkerFailed) as unusable:
        open_at(worker, subject="carrier-pigeon")
    assert unusable.value.kind == "unusable"
    port = free_ports(2)
    open_at(worker, port=port)
    other = LocalWorker("Digital Twin")
    try:
        with pytest.raises(WorkerFailed, match="in use") as failed:
            open_at(other, port=port)
        assert failed.value.kind == "failed"
    finally:
        other.end()


def test_no_answer_is_a_lost_peer(worker: LocalWorker) -> None:
    open_at(worker, listening=False)
    with pytest.raises(WorkerFailed, match="no answer from") as lost:
        worker.ask("warm", PATIENCE_S, None, octets=10, count=1, timeout_s=0.2)
    assert lost.value.kind == "peer lost"


def test_a_bare_connection_to_a_peer_that_reads_nothing_is_a_lost_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "SEND_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = tcp.TcpChannel(Endpoint(*listener.getsockname()), False, "here", {})
        made.open()
        try:
            made._made.wait(PATIENCE_S)
            made.load(1024 * 1024)
            with pytest.raises(PeerLost, match="took nothing for 1 s"):
                send_modes.flood(made, 1000, 0.0, threading.Event())
        finally:
            made.close()


def test_a_worker_that_ends_at_once_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def slowly(thread: threading.Thread) -> None:
        start(thread)
        time.sleep(0.3)

    monkeypatch.setattr(threading.Thread, "start", slowly)
    made = LocalWorker("Real World", ("false",))
    wait_until(lambda: made.lost is not None)
    assert "ended with code 1" in str(made.lost)
    made.end()


def test_a_worker_that_was_killed_is_lost_and_says_how(worker: LocalWorker) -> None:
    assert worker.ask("system", PATIENCE_S)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerLost, match="Real World was ended by signal 9"):
        worker.ask("system", PATIENCE_S)


def test_it_ends_when_its_stdin_does_and_ignores_what_is_no_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "twinlink_measure.worker"],
        input=b'what?\n[]\n{"id": 7, "do": "cancel"}\n',
        capture_output=True,
        check=True,
        timeout=PATIENCE_S,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [0, None, None, 7]
    assert done.stderr == b""


def test_one_that_may_only_listen_opens_nothing_else() -> None:
    port = free_ports(2)
    command = [sys.executable, "-m", "twinlink_measure.worker", "--listen-only", f"127.0.0.1:{port}-{port + 1}"]
    common = {"do": "open", "subject": "raw-tcp", "node": "x"}
    asked = [
        {"id": 1, "listening": False, "host": "127.0.0.1", "port": port, **common},
        {"id": 2, "listening": True, "host": "127.0.0.1", "port": port + 2, **common},
        {"id": 3, "listening": True, "host": "198.51.100.1", "port": port, **common},  # it takes its own host
    ]
    lines = "".join(json.dumps(line) + "\n" for line in asked).encode()
    done = subprocess.run(command, input=lines, capture_output=True, check=True, timeout=PATIENCE_S)
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert "does nothing else" in answers[1]["error"]
    assert "does nothing else" in answers[2]["error"]
    assert "error" not in answers[3]


def test_rows_become_tables() -> None:
    rows = SentRows(100, 3)
    rows.sent(99, 0, 1, 1)  # before the first: warm-up
    rows.answered(99, 1, 1, 1, 1, 1)
    rows.sent(100, 0, 1000, 50)
    rows.sent(101, 1500, 2000, 60)
    rows.sent(102, 0, 3000, 70)
    rows.sent(103, 0, 4000, 80)  # behind the last
    rows.answered(100, 57, 1000, 1003, 1004, 1007)
    rows.answered(102, 79, 3000, 3003, 3004, 3009)
    parts = {name: decode(encode(octets)) for name, octets in rows.parts().items()}
    table = sent_table(4, 10, parts["sent"], parts["answer"])
    assert table.tolist() == [
        (4, 0, 10, 1000, 1000, True, 1003, 1004, 1007, 7),
        (4, 1, 10, 1500, 2000, False, 0, 0, 0, 0),
        (4, 2, 10, 3000, 3000, True, 3003, 3004, 3009, 9),
    ]
    came = ReceivedRows(1)  # and more come than there is room for
    for sequence in (99, 100, 102, 102, 103):
        came.arrived(sequence, 10, sequence * 10, sequence * 10 + 3)
    assert came.since(rows.first) == 4
    table = received_table(4, decode(encode(came.parts()["received"])), rows.first, rows.used)
    assert table.tolist() == [(4, 0, 10, 1000, 1003), (4, 2, 10, 1020, 1023), (4, 2, 10, 1020, 1023)]


def test_rows_that_were_spoilt_on_the_way_are_refused() -> None:
    for text in ("", "====", "AAAA"):
        with pytest.raises(ValueError, match=r"rows that cannot be read|padding|base64"):
            decode(text)


def test_rows_that_unpack_to_more_than_a_part_are_refused() -> None:
    assert decode(encode(bytes(PART_OCTETS))) == bytes(PART_OCTETS)
    with pytest.raises(ValueError, match="more than 2097152 octets"):
        decode(encode(bytes(PART_OCTETS + 1)))
