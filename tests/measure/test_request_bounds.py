"""A pong does for a peer what a sweep needs, and no more: bounds, no files, no hosts, and a limit for what waits."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from twinlink_measure import remote as remote_module
from twinlink_measure import row_buffer
from twinlink_measure.channels import SUBJECTS, PeerLost
from twinlink_measure.channels.tcp import TcpChannel
from twinlink_measure.remote import PORT_OFFSET, SAID, TOLD, Remote, RemoteWorker, WorkerHost
from twinlink_measure.request_bounds import MAX_COUNT, OPTION_OCTETS, REQUEST_OCTETS
from twinlink_measure.row_buffer import ReceivedRows, encode
from twinlink_measure.worker_handle import WorkerFailed

import twinlink
from tests.cli.running import PATIENCE_S
from twinlink.process.ports import free_ports
from twinlink.protocol.frames import DATA_WORD, HEADER, MAX_PAYLOAD
from twinlink.testing.base import wait_until
from twinlink.transports import Endpoint


class Pong:
    """A pong's host of workers, and a peer that may ask it for anything."""

    def __init__(self, ntp: str | None = None) -> None:
        self.port = free_ports(PORT_OFFSET + 2)
        endpoint = f"tcp/127.0.0.1:{self.port}"
        self.link = twinlink.open("memory", listen=endpoint, node="pong")
        self.peer = twinlink.open("memory", connect=endpoint, node="peer")
        self.host = WorkerHost(self.link, ntp)
        self.peer.wait_ready(PATIENCE_S)
        self.remote = Remote(self.peer)

    def start(self) -> RemoteWorker:
        return RemoteWorker("Digital Twin", self.remote)

    def open(self, worker: RemoteWorker, subject: str = "raw-tcp", **changed: Any) -> dict[str, Any]:
        asked = {"listening": True, "host": "127.0.0.1", "port": self.port + PORT_OFFSET, "node": "n", **changed}
        return worker.ask("open", PATIENCE_S, None, subject=subject, **asked)

    def close(self) -> None:
        self.host.close()
        self.peer.close()
        self.link.close()


@pytest.fixture(scope="module")
def pong() -> Iterator[Pong]:
    made = Pong()
    yield made
    made.close()


@pytest.fixture(scope="module")
def worker(pong: Pong) -> Iterator[RemoteWorker]:
    made = pong.start()
    pong.open(made)
    yield made
    made.end()


@pytest.mark.parametrize(
    ("what", "arguments", "told"),
    [
        ("reflect", {"octets": 1, "count": MAX_COUNT + 1}, r"count is 500001: a pong takes 0 to 500,000, so ask"),
        ("reflect", {"octets": 1, "count": -1}, "count is -1"),
        ("reflect", {"octets": 1, "count": True}, "count is True"),
        ("reflect", {"octets": MAX_PAYLOAD + 1, "count": 1}, "octets is 16777217"),
        ("warm", {"octets": 2**40, "count": 1, "timeout_s": 0.1}, "octets is 1099511627776"),
        ("send", {"mode": "closed", "octets": 1, "count": 10**9, "timeout_s": 1}, "count is 1000000000"),
        ("send", {"mode": "open", "octets": 1, "count": 1, "timeout_s": 1, "rate_hz": 0}, "rate_hz is 0"),
        ("idle", {"octets": 1, "count": 1, "timeout_s": 1e9, "interval_s": 1}, "timeout_s is 1000000000.0"),
        ("finish", {"first": 0, "expected": "all"}, "expected is 'all'"),
        ("mgen-send", {"octets": 1, "count": 10**7, "rate_hz": 1, "timeout_s": 1}, "count is 10000000"),
        (["system"], {}, "no command is called"),
    ],
)
def test_more_than_a_sweep_needs_is_refused(
    worker: RemoteWorker, what: str, arguments: dict[str, Any], told: str
) -> None:
    with pytest.raises(WorkerFailed, match=f"on the other host .*: {told}"):
        worker.ask(what, PATIENCE_S, None, **arguments)


def test_a_sweep_gets_what_it_needs(worker: RemoteWorker) -> None:
    worker.ask("reflect", PATIENCE_S, None, octets=MAX_PAYLOAD, count=MAX_COUNT, bulk=True)
    worker.ask("mark", PATIENCE_S)
    assert worker.ask("finish", PATIENCE_S, None, first=0, expected=0)["usage"]


@pytest.mark.parametrize(
    ("subject", "options", "told"),
    [
        ("websocket", {"tls_certificate": __file__}, "option tls_certificate is no number and no switch"),
        ("websocket", {"tls_certificate": "/there/is/none"}, "option tls_certificate is no number and no switch"),
        ("websocket", {"proxy": "http://127.0.0.1:1"}, "option proxy is no number"),
        ("zenoh", {"namespace": ["a"]}, "option namespace is no number"),
        ("zeromq", {"retention": OPTION_OCTETS + 1}, "option retention is 268435457"),
        ("websocket", {"unread_octets": 2**60}, "option unread_octets is"),
        ("raw-uadp-eth", {}, "it needs Ethernet"),
    ],
)
def test_options_from_another_host_name_no_file_and_no_host_and_keep_little(
    pong: Pong, worker: RemoteWorker, subject: str, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(WorkerFailed, match=told) as refused:
        pong.open(worker, subject, options=options)
    assert refused.value.kind == "unusable"
    assert "/there/is/none" not in str(refused.value)


def test_options_that_a_sweep_sets_are_taken(pong: Pong, worker: RemoteWorker) -> None:
    options = {"window": 2**20, "reliability": "detect", "heartbeat_ms": 300, "busy_poll": False}
    assert pong.open(worker, "zeromq", options=options)["options"].items() >= options.items()
    pong.open(worker)  # as the other tests expect it


@pytest.mark.parametrize("changed", [{"listening": False}, {"listening": 1}, {"port": 1}, {"port": "1"}])
def test_a_worker_listens_at_its_ports_and_does_nothing_else(
    pong: Pong, worker: RemoteWorker, changed: dict[str, Any]
) -> None:
    with pytest.raises(WorkerFailed, match="and does nothing else"):
        pong.open(worker, **changed)


def test_the_operator_of_the_pong_says_which_ntp_server_is_asked(pong: Pong, worker: RemoteWorker) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(0.3)
        name = f"127.0.0.1:{server.getsockname()[1]}"
        told = worker.ask("ntp", PATIENCE_S, None, server=name)["ntp"]
        assert told == {"server": name, "error": told["error"]}
        assert "start it with --ntp" in told["error"]
        with pytest.raises(TimeoutError):
            server.recv(100)
        other = Pong(name)
        try:
            allowed = other.start()
            assert "alone" in allowed.ask("ntp", PATIENCE_S, None, server="127.0.0.2")["ntp"]["error"]
            question = allowed.begin("ntp", server=name)
            server.settimeout(PATIENCE_S)
            assert len(server.recv(100)) == 48
            assert "no answer" in allowed.answer(question, PATIENCE_S)["ntp"]["error"]
            allowed.end()
        finally:
            other.close()


def test_one_command_that_sends_at_a_time(pong: Pong, worker: RemoteWorker) -> None:
    pong.open(worker)
    first = worker.begin("warm", octets=1, count=1, timeout_s=60)
    with pytest.raises(WorkerFailed, match="it is sending"):
        worker.ask("warm", PATIENCE_S, None, octets=1, count=1, timeout_s=60)
    pong.open(worker)  # ends the channel
    worker.ask("cancel", PATIENCE_S)
    del first


def test_a_flood_of_requests_ends_the_worker_and_not_the_pong(pong: Pong) -> None:
    lines = pong.start()
    pong.open(lines)
    finish = json.dumps({"id": 1, "do": "finish", "first": 0, "expected": 1}).encode()  # takes a second
    for _ in range(2 * 2**16 // len(finish)):
        pong.remote.send(lines._own + finish)
    wait_until(lambda: lines.lost is not None)
    assert "faster than it answers" in str(lines.lost)
    again = pong.start()
    assert again.ask("system", PATIENCE_S)["system"]
    again.end()


def test_a_request_that_is_too_long_is_rejected(pong: Pong) -> None:
    made = pong.start()
    events = pong.peer.events()
    pong.remote.send(made._own + b" " * (REQUEST_OCTETS + 1))
    wait_until(lambda: isinstance(events.receive(PATIENCE_S), twinlink.Lost))
    assert made.ask("system", PATIENCE_S)["system"]
    made.end()


def test_arrivals_beyond_what_was_announced_are_counted_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_buffer, "MORE_ROWS", 100)
    rows = ReceivedRows(10)
    for number in range(5000):
        rows.arrived(number, 1, 2, 3)
    assert rows.used + rows.left_out == 5000
    assert rows.used < 120 + 1024
    assert len(rows.parts()["received"]) == rows.used * 32


def test_a_sweep_keeps_little_of_what_a_pong_says_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_module, "ROWS_OCTETS", 1000)
    endpoint = "tcp/pong:7447"
    with twinlink.open("memory", listen=endpoint) as pong, twinlink.open("memory", connect=endpoint) as here:
        asked, said = pong.receiver(TOLD), pong.sender(SAID)
        here.wait_ready(PATIENCE_S)
        worker = RemoteWorker("Digital Twin", Remote(here))
        number = worker.begin("finish", first=0, expected=0)
        while (message := asked.receive(PATIENCE_S)) is not None and b"finish" not in bytes(message.payload):
            pass
        part = {"part": "received_rows", "rows": encode(bytes(600))}
        for line in ({"id": 77, **part}, {"id": 78, "usage": None}, {"id": number, **part}, {"id": number, **part}):
            said.send(worker._own + json.dumps(line).encode())
        with pytest.raises(WorkerFailed, match="more than 1000 octets"):
            worker.answer(number, PATIENCE_S)
        assert worker._answers == worker._parts == {}


def test_every_subject_of_a_sweep_can_be_opened_within_the_bounds() -> None:
    from twinlink_measure.request_bounds import RequestBounds

    bounds = RequestBounds("127.0.0.1", 7457, 7458)
    refused = []
    for subject in SUBJECTS:
        try:
            bounds.check_open(subject, True, 7457, {})
        except twinlink.ConfigurationError:
            refused.append(subject)
    assert refused == ["raw-uadp-eth"]


@pytest.mark.parametrize("octets", [MAX_PAYLOAD + 1, 2**32 - 1])
def test_a_stranger_at_the_port_of_a_bare_connection_cannot_announce_a_longer_frame(octets: int) -> None:
    port = free_ports()
    made = TcpChannel(Endpoint("127.0.0.1", port), True, "n", {})
    made.open()
    try:
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(HEADER.pack(DATA_WORD, octets, 1, 0, 0))
            with pytest.raises(PeerLost, match="are the most"):
                wait_until(made.get)
        assert len(made._buffer) < MAX_PAYLOAD
    finally:
        made.close()
