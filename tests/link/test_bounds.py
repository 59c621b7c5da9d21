"""Foreign programs that send more than a node takes: its memory stays within its limits, and its peers lose nothing."""

import contextlib
import itertools
import json
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import twinlink
from twinlink.protocol.frames import HEADER_OCTETS, HELLO_TOPIC, MAX_HELLO, MAX_PAYLOAD, Hello, Kind, frame
from twinlink.protocol.liveness import MAX_HELLO_OCTETS
from twinlink.protocol.send.flow_control import MAX_UNCONSUMED
from twinlink.testing import ForeignPeer, patience, wait_until
from twinlink.testing.base import drain
from twinlink.transports import Endpoint, transport_class
from twinlink.transports.base import make_options

MIB = 1024 * 1024
WINDOW, RECEIVE_BUFFER, UNREAD = 8 * MIB, 32 * MIB, 16 * MIB  # of the node that is attacked
HELLO_OCTETS = 8 * MAX_HELLO_OCTETS  # what Python needs for the hellos that are remembered
SLACK = 16 * MIB  # what the interpreter and the transport need for any traffic
BLOCK = bytes(64 * 1024)
NODE = """
import json, sys
import twinlink
transport, endpoint, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
with twinlink.open(transport, listen=endpoint, node="victim", **options) as link:
    unread, pong = link.receiver("unread"), link.sender("pong")
    link.receiver("ping", handler=lambda message: pong.send(message.payload))
    print(link.epoch, flush=True)
    for _ in sys.stdin:
        stats = link.stats()
        answer = {"limits": stats["limits_exceeded"], "malformed": stats["malformed"]}
        answer["unread"] = stats["received"]["unread"]
        print(json.dumps(answer), flush=True)
"""


class Victim:
    """A listener in a process of its own, whose peer is in this one.

    It answers each message on ``ping``, and does not read what comes on ``unread``.
    """

    def __init__(self, transport: Any, endpoint: str) -> None:
        self.transport, self.endpoint = transport, endpoint
        options = {"window": WINDOW, "receive_buffer": RECEIVE_BUFFER, "unread_octets": UNREAD}
        command = [sys.executable, "-c", NODE, transport, endpoint, json.dumps(options)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.epoch = int(self._line())
        self.peer = twinlink.open(transport, connect=endpoint, node="peer")
        self.peer.wait_ready(patience())
        self._pongs, self._pings = self.peer.receiver("pong"), self.peer.sender("ping")
        self.exchange()
        self._before_octets = self._peak_octets()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def _peak_octets(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    @property
    def grown_octets(self) -> int:
        """How far the process has grown at most."""
        return self._peak_octets() - self._before_octets

    def stats(self) -> Any:
        """Of the link: limits that were exceeded, malformed frames, and the flow that is not read."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self._line())

    def exchange(self, count: int = 10) -> None:
        """Messages of the peer and their answers, none of which may be missing."""
        for _ in range(count):
            number = self._pings.send(b"ping" * 100)
            message = self._pongs.receive(patience())
            assert message is not None
            assert message.sequence == number

    def close(self) -> None:
        self.peer.close()
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(patience()) == 0


@pytest.fixture(params=["zeromq", "zenoh"])
def victim(request: pytest.FixtureRequest, endpoint: str) -> Iterator[Victim]:
    with contextlib.closing(Victim(request.param, endpoint)) as made:
        yield made
        made.exchange()
        assert drain(made.peer, twinlink.PeerDown, twinlink.Lost, twinlink.Gap) == []


@pytest.fixture
def stranger(victim: Victim) -> Iterator[ForeignPeer]:
    backend = transport_class(victim.transport)
    options = make_options(victim.transport, backend.options_class, {})
    transport = backend(Endpoint.parse(victim.endpoint), False, MAX_PAYLOAD + HEADER_OCTETS, options)
    transport.open()
    with contextlib.closing(ForeignPeer(transport, "stranger")) as peer:
        peer.repairs = True

        def is_connected() -> bool:
            peer.send("traffic/unread", b"?")
            return bool(victim.stats()["malformed"])

        wait_until(is_connected)
        yield peer


def hello(stranger: ForeignPeer, epoch: int, node: str, flows: dict[str, int], *heard: int) -> None:
    """A hello of any session."""
    body = Hello(node, dict.fromkeys(heard, 0), flows, repairs=True).encode()
    assert len(body) <= MAX_HELLO
    stranger.transport.send(HELLO_TOPIC, frame(Kind.HELLO, epoch, 1, time.time_ns(), body))


def data(stranger: ForeignPeer, epoch: int, sequence: int, payload: bytes, flow: str = "unread") -> None:
    """A data message of any session."""
    stranger.send(f"traffic/{flow}", frame(Kind.DATA, epoch, sequence, time.time_ns(), payload))


def send_until(victim: Victim, reached: Callable[[], object], act: Callable[[int], object]) -> None:
    """Have a stranger act, and the peer exchange messages, until the victim has met a limit."""
    numbers = itertools.count()

    def go_on() -> object:
        for number in itertools.islice(numbers, 50):
            act(number)
        victim.exchange()
        return reached()

    wait_until(go_on)


def test_a_sender_without_flow_control_fills_its_window_and_no_more(victim: Victim, stranger: ForeignPeer) -> None:
    stranger.hello()
    for burst in range(8):
        for number in range(200):  # 12.5 MiB
            data(stranger, stranger.epoch, 200 * burst + number, BLOCK)
        victim.exchange()
    wait_until(lambda: victim.stats()["limits"].get("window", 0) > 0)
    assert victim.stats()["unread"]["queued_octets"] <= WINDOW
    assert victim.grown_octets < 1.1 * (WINDOW + UNREAD) + SLACK


def test_invented_sessions_leave_room_for_the_peers(victim: Victim, stranger: ForeignPeer) -> None:
    epochs = itertools.count(1)

    def fill(_: int) -> None:
        epoch = next(epochs)
        hello(stranger, epoch, f"invented-{epoch}", {}, victim.epoch)
        for number in range(10):
            data(stranger, epoch, number, BLOCK)

    send_until(victim, lambda: victim.stats()["limits"].get("window", 0) > 100, fill)
    assert victim.stats()["unread"]["queued_octets"] <= RECEIVE_BUFFER / 2
    unread = victim.peer.sender("unread")
    unread.send(BLOCK)
    unread.flush(patience())
    assert victim.grown_octets < 1.1 * (RECEIVE_BUFFER + UNREAD) + SLACK


def test_messages_without_octets_are_limited_by_number(victim: Victim, stranger: ForeignPeer) -> None:
    def bundle(number: int) -> None:
        first = 1000 * number
        frames = [frame(Kind.DATA, stranger.epoch, sequence, 1, b"") for sequence in range(first, first + 1000)]
        stranger.send("traffic/unread", frame(Kind.BUNDLE, stranger.epoch, 0, time.time_ns(), b"".join(frames)))

    stranger.hello()
    send_until(victim, lambda: "window" in victim.stats()["limits"], bundle)
    assert victim.stats()["unread"]["received"] <= 1.2 * MAX_UNCONSUMED


def test_long_hellos_of_invented_sessions_are_limited(victim: Victim, stranger: ForeignPeer) -> None:
    flows = {f"{number}-{'x' * 50}": number for number in range(4000)}

    def greet(number: int) -> None:
        hello(stranger, secrets.randbits(64), f"invented-{number}", flows)

    for _ in range(6):
        for number in range(50):
            greet(number)
        victim.exchange()
    assert victim.grown_octets < 1.1 * (HELLO_OCTETS + UNREAD) + SLACK


def test_flows_that_a_peer_invents_are_limited(victim: Victim, stranger: ForeignPeer) -> None:
    stranger.hello()
    send_until(
        victim,
        lambda: "flows" in victim.stats()["limits"],
        lambda number: data(stranger, stranger.epoch, 0, b"", f"invented-{number}"),
    )


def test_a_jump_of_the_numbers_is_refused(victim: Victim, stranger: ForeignPeer) -> None:
    data(stranger, stranger.epoch, 0, b"")
    for number in range(1000):
        data(stranger, stranger.epoch, (number + 1) << 40, b"")
    wait_until(lambda: victim.stats()["limits"].get("sequence") == 1000)
    assert victim.stats()["unread"]["received"] == 1


@pytest.mark.parametrize("max_payload", [1, MAX_PAYLOAD])
def test_a_peer_that_takes_little_and_acknowledges_nothing_costs_the_others_nothing(
    victim: Victim, stranger: ForeignPeer, max_payload: int
) -> None:
    stranger.max_payload = max_payload
    stranger.meet(cast(twinlink.Link, victim))  # which looks at the epoch alone
    for _ in range(20):
        stranger.hello(victim.epoch)
        victim.exchange(20)


def test_a_stranger_with_the_name_of_a_peer_does_not_take_its_place(victim: Victim, stranger: ForeignPeer) -> None:
    stranger.node = "peer"
    for _ in range(20):
        stranger.hello(victim.epoch)
        victim.exchange(20)
    assert victim.peer.peers() == ["victim"]
