"""Programs written from docs/protocol.md alone, with nothing but pyzmq, against live links."""

import json
import queue
import secrets
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

import twinlink
from twinlink.testing import patience, wait_until

ROOT = Path(__file__).parents[2]
READER = ROOT / "examples" / "raw_reader.py"
PAGE = (ROOT / "docs" / "protocol.md").read_text()


def test_the_page_names_the_reader_which_needs_no_twinlink() -> None:
    assert f"examples/{READER.name}" in PAGE
    assert "twinlink" not in "".join(line for line in READER.read_text().splitlines() if "import" in line)


def test_the_reader_says_how_it_is_called() -> None:
    for arguments in ([], ["--help"]):
        command = [sys.executable, str(READER), *arguments]
        run = subprocess.run(command, capture_output=True, text=True, timeout=patience(), check=False)
        assert (run.returncode, run.stdout) == (1, "")
        assert run.stderr.startswith("Decode live twinlink traffic")


@pytest.fixture
def port(endpoint: str) -> int:
    return int(endpoint.rsplit(":", 1)[1])


class Reader:
    """The example in a process of its own, and the lines it has printed."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen([sys.executable, READER, *arguments], stdout=subprocess.PIPE, text=True)
        self.lines: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.split())

    def next(self, topic: str, kind: str) -> list[str]:
        while True:
            line = self.lines.get(timeout=patience())
            if (line[0], line[4]) == (topic, kind):
                return line

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.thread.join()


def test_it_decodes_live_traffic(endpoint: str, port: int) -> None:
    with (
        twinlink.open("zeromq", listen=endpoint, node="listener") as link,
        twinlink.open("zeromq", connect=endpoint, node="connector") as other,
    ):
        link.wait_ready(patience())
        other.wait_ready(patience())
        reader = Reader(f"tcp://127.0.0.1:{port}")
        try:
            hello = reader.next("traffic/_link", "hello")  # it is subscribed from now on
            assert hello[1] == f"{link.epoch:016x}"
            said = json.loads(" ".join(hello[5:]))
            said.pop("behind", None)  # of a busy machine that is true
            assert list(said.pop("heard")) == [f"{other.epoch:016x}"]
            assert said == {"node": "listener", "flows": {}, "repairs": True, "detect": [], "runs": True}
            assert link.sender("spectrum").send(b"samples") == 0
            message = other.receiver("spectrum").receive(timeout=patience())
            assert message is not None
            assert reader.next("traffic/spectrum", "data") == [
                "traffic/spectrum", f"{link.epoch:016x}", "0", str(message.sent_ns), "data", "7", b"samples".hex(),
            ]  # fmt: skip
            acks: list[twinlink.Ack] = []
            other.sender("control", on_ack=acks.append).send(b"")
            other.sender("control").flush(patience())
            ack = reader.next("ack/control", "ack")
            assert (ack[1], ack[3]) == (f"{link.epoch:016x}", str(acks[0].peer_sent_ns))
            acked_epoch, _, *record = map(int, ack[5:])
            assert acked_epoch == other.epoch
            assert record == [0, acks[0].sent_ns, acks[0].peer_received_ns]
        finally:
            reader.close()


def test_it_can_be_the_listener(endpoint: str, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "twinlink.protocol.reconnect.TIMEOUT_FACTORS", (1,)
    )  # otherwise it reconnects now and then, as no peer answers
    reader = Reader(f"tcp://127.0.0.1:{port + 1}", "bind")
    try:
        with twinlink.open("zeromq", connect=endpoint, node="connector") as link:
            assert reader.next("traffic/_link", "hello")[1] == f"{link.epoch:016x}"
            link.sender("spectrum").send(b"samples")
            assert reader.next("traffic/spectrum", "data")[5:] == ["7", b"samples".hex()]
        assert reader.next("traffic/_link", "bye")[1] == f"{link.epoch:016x}"
    finally:
        reader.close()


HEADER = struct.Struct("!2sBBIQQQ")
DATA, ACK, HELLO, BYE = 1, 2, 3, 4
RETURNED_OCTETS = 64  # of each payload


class ByThePage:
    """A peer that follows the page's rules and nothing else."""

    def __init__(self, listen: bool, port: int) -> None:
        self.epoch = secrets.randbits(64)
        self.heard: dict[int, int] = {}
        self.hellos = 0
        self.got: list[tuple[str, int, bytes]] = []
        self.acknowledged: list[int] = []
        self.up = False
        self.context = zmq.Context()
        self.pub, self.sub = self.context.socket(zmq.PUB), self.context.socket(zmq.SUB)
        self.sub.subscribe(b"ack/")
        self.sub.subscribe(b"traffic/")
        if listen:
            self.pub.bind(f"tcp://127.0.0.1:{port}")
            self.sub.bind(f"tcp://127.0.0.1:{port + 1}")
        else:
            self.sub.connect(f"tcp://127.0.0.1:{port}")
            self.pub.connect(f"tcp://127.0.0.1:{port + 1}")
        self.stop = threading.Event()
        self.sequence = 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def send(self, topic: bytes, kind: int, sequence: int, body: bytes) -> None:
        header = HEADER.pack(b"TL", 1, kind, len(body), self.epoch, sequence, time.time_ns())
        self.pub.send_multipart([topic, header + body])

    def hello(self) -> None:
        heard = {f"{epoch:016x}": number for epoch, number in self.heard.items()}
        body = {"node": "by-the-page", "heard": heard, "flows": {"back": self.sequence}}
        self.hellos += 1
        self.send(b"traffic/_link", HELLO, self.hellos, json.dumps(body).encode())

    def run(self) -> None:
        due = 0.0
        while not self.stop.is_set():
            if time.monotonic() >= due:
                self.hello()
                due = time.monotonic() + (0.2 if self.up else 0.05)
            if self.sub.poll(10):
                topic, frame = self.sub.recv_multipart()
                self.take(topic, frame)
        self.send(b"traffic/_link", BYE, 0, b"")
        self.pub.close(500)
        self.sub.close(0)
        self.context.term()

    def take(self, topic: bytes, frame: bytes) -> None:
        _, _, kind, _, epoch, sequence, sent_ns = HEADER.unpack_from(frame)
        body = frame[32:]
        if kind == HELLO:
            hears_us = f"{self.epoch:016x}" in json.loads(body)["heard"]
            answer = not hears_us or not self.up
            self.heard[epoch] = sequence
            self.up = self.up or hears_us
            if answer:
                self.hello()
        elif kind == DATA:
            flow = topic.removeprefix(b"traffic/")
            self.got.append((flow.decode(), sequence, body))
            ack = struct.pack("!QQQQQ", epoch, sequence + 1, sequence, sent_ns, time.time_ns())
            self.send(b"ack/" + flow, ACK, 0, ack)
            # It retransmits nothing, so all that it sends fits the window of a link whose handler is behind.
            self.send(b"traffic/back", DATA, self.sequence, body[:RETURNED_OCTETS])
            self.sequence += 1
        elif kind == ACK and struct.unpack_from("!Q", body)[0] == self.epoch:
            self.acknowledged += [record[0] for record in struct.iter_unpack("!QQQ", body[16:])]

    def close(self) -> None:
        self.stop.set()
        self.thread.join()


@pytest.fixture(params=["listen", "connect"])
def by_the_page(request: pytest.FixtureRequest, port: int) -> Iterator[tuple[ByThePage, str]]:
    peer = ByThePage(request.param == "listen", port)
    yield peer, "connect" if request.param == "listen" else "listen"
    peer.close()


def test_a_program_written_from_the_page_is_a_full_peer(by_the_page: tuple[ByThePage, str], endpoint: str) -> None:
    peer, role = by_the_page
    arguments = {role: endpoint}
    with twinlink.open("zeromq", window=2**20, **arguments) as link:  # type: ignore[arg-type]
        link.wait_ready(patience())
        assert link.peers() == ["by-the-page"]
        back: list[twinlink.Message] = []
        link.receiver("back", handler=back.append)
        outbox = link.sender("forth")
        payloads = [bytes([number % 256]) * (number * 37) for number in range(500)]  # more than the window
        for payload in payloads:
            outbox.send(payload)
        outbox.flush(patience())
        assert peer.got == [("forth", number, payload) for number, payload in enumerate(payloads)]
        wait_until(lambda: len(back) == len(payloads))
        assert [(m.sequence, bytes(m.payload)) for m in back] == list(
            enumerate(payload[:RETURNED_OCTETS] for payload in payloads)
        )
        wait_until(lambda: sorted(peer.acknowledged) == list(range(500)))
        stats = outbox.stats()
        assert (stats["acknowledged"], stats["lost"], stats["outstanding"]) == (500, 0, 0)
        assert link.stats()["malformed"] == {}
        peer.close()
        wait_until(lambda: link.peers() == [])
        reasons = [event.reason for event in iter(lambda: link.events().receive(timeout=0), None)
                   if isinstance(event, twinlink.PeerDown)]  # fmt: skip
        assert reasons == ["closed"]
