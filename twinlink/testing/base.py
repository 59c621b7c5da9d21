"""Shared parts of the suite: endpoints, links that are closed at the end, and a peer that speaks the wire format."""

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

import twinlink
from twinlink.process.ports import free_ports
from twinlink.protocol import liveness
from twinlink.protocol.authentication import new_epoch
from twinlink.protocol.frames import (
    HEADER_OCTETS,
    HELLO_TOPIC,
    MAX_PAYLOAD,
    RETRANSMIT_WORD,
    Hello,
    Kind,
    ack_body,
    check,
    frame,
    parse,
    parse_bundle,
    whole,
)
from twinlink.transports import Endpoint, Transport, transport_class, transport_name
from twinlink.transports.base import Frame, make_options

from .identities import Identities

SCALE = float(os.environ.get("TWINLINK_TEST_SCALE", "1"))
PATIENCE_S = 60.0  # for what must come: only a failing test waits for so long
CLOSE_S = 1.0  # the contract
GENEROUS = 4  # factor that allows for a busy machine

Open = Callable[..., twinlink.Link]
Pair = tuple[twinlink.Link, twinlink.Link]


def patience(seconds: float = PATIENCE_S) -> float:
    """``seconds``, scaled by ``TWINLINK_TEST_SCALE``."""
    return seconds * SCALE


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Return when ``condition()`` holds; fail after ``seconds`` (scaled)."""
    deadline = time.monotonic() + patience(seconds)
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {patience(seconds):g} s"
        time.sleep(0.005)


class Stopwatch:
    """A context manager that measures a duration without the machine's own stalls.

    A thread that only sleeps measures the stalls: its delay applies to other threads as well.  So a time limit can be
    tested on a machine that stalls now and then; code that is too slow by itself still fails (unless it holds Python's
    global lock, which looks the same).
    """

    _NAP_S = 0.01

    def __init__(self) -> None:
        self._late: tuple[float, float] = 0.0, time.monotonic() + self._NAP_S  # stalls so far; end of this nap
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._nap, daemon=True)

    def _nap(self) -> None:
        while not self._over.is_set():
            time.sleep(self._NAP_S)
            self._late = self.late_s(), time.monotonic() + self._NAP_S

    def late_s(self) -> float:
        """Seconds of stalls so far."""
        late_s, due = self._late
        more_s = time.monotonic() - due
        return late_s + more_s if more_s > self._NAP_S else late_s

    def now(self) -> float:
        """Seconds on a clock that stops during stalls."""
        return time.monotonic() - self.late_s()

    def sleep(self, seconds: float) -> None:
        """Sleep for so long on this clock."""
        until = self.now() + seconds
        while (left := until - self.now()) > 0:
            time.sleep(left)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def free_endpoint(ports: int = 2) -> str:
    """``tcp/127.0.0.1:port`` with ``ports`` consecutive free ports, which no other process is given."""
    return f"tcp/127.0.0.1:{free_ports(ports)}"


def receive_all(receiver: twinlink.Receiver, count: int, seconds: float = PATIENCE_S) -> list[twinlink.Message]:
    """The next ``count`` messages; fails if there are fewer or more."""
    deadline = time.monotonic() + patience(seconds)
    messages: list[twinlink.Message] = []
    while len(messages) < count:
        message = receiver.receive(timeout=deadline - time.monotonic())
        assert message is not None, f"{len(messages)} of {count} messages came"
        messages.append(message)
    assert receiver.receive(timeout=0) is None
    return messages


def drain(link: twinlink.Link, *kinds: type[twinlink.Event]) -> list[Any]:
    """The events of these kinds so far."""
    found = []
    while (event := link.events().receive(timeout=0)) is not None:
        found.append(event)
    return [event for event in found if isinstance(event, kinds or twinlink.Event)]


def wait_for_event(link: twinlink.Link, kind: type[twinlink.Event], seconds: float = PATIENCE_S) -> Any:
    """The next event of this kind; those before it are passed over."""
    deadline = time.monotonic() + seconds
    while not isinstance(event := link.events().receive(timeout=deadline - time.monotonic()), kind):
        assert event is not None, f"no {kind.__name__} came"
    return event


def malformed(link: twinlink.Link) -> dict[str, int]:
    """Malformed frames that the link has dropped, by reason."""
    return dict(link.stats()["malformed"])


class ForeignPeer:
    """A peer that speaks the wire format over a bare transport, and can do what a link never does."""

    def __init__(self, transport: Transport, node: str = "foreign", epoch: int | None = None) -> None:
        self.transport = transport
        self.node = node
        self.epoch = new_epoch(node if transport.identity is not None else None) if epoch is None else epoch
        self.flows: dict[str, int] = {}
        self.repairs = False
        self.max_payload = MAX_PAYLOAD
        self.hellos = 0
        self.bundles = 0  # received
        self.numbers: dict[int, int] = {}  # epoch -> number of its last hello
        self.echoes: dict[int, int] = {}  # epoch -> number of our last hello that it acknowledged
        self._kept: deque[tuple[bytes, Frame]] = deque()  # received during the handshake

    def send(self, topic: str, octets: bytes) -> None:
        """Send any octets on any topic."""
        self.transport.send(topic.encode(), octets)

    def hello(self, *heard: int) -> None:
        """Say hello, acknowledging these epochs."""
        self.hellos += 1
        numbers = {epoch: self.numbers.get(epoch, 0) for epoch in heard}
        body = Hello(self.node, numbers, self.flows, self.repairs, behind=True, max_payload=self.max_payload).encode()
        self.transport.send(HELLO_TOPIC, frame(Kind.HELLO, self.epoch, self.hellos, time.time_ns(), body))

    def meet(self, link: twinlink.Link) -> None:
        """Say hello until the link has this peer among its peers."""
        while self.transport.receive(0) is not None:
            pass  # earlier frames

        def greet() -> int:
            """The number of our last hello that the link acknowledged."""
            self.hello(link.epoch)
            while (received := self._read(0.02)) is not None:
                if parse(received[1])[:2] == (Kind.HELLO, link.epoch):
                    break
                self._kept.append(received)
            return self.echoes.get(link.epoch, 0)

        self.echoes.clear()
        wait_until(greet)
        confirming = self.hellos + 1
        wait_until(lambda: greet() >= confirming)

    def receive(self, timeout_s: float) -> tuple[bytes, Frame] | None:
        """The next topic and frame, unbundled; hellos are recorded."""
        received = self._kept.popleft() if self._kept else self._read(timeout_s)
        if received is None or len(received[1]) < HEADER_OCTETS or check(received[1]) is not Kind.BUNDLE:
            return received
        self.bundles += 1
        topic, bundle = received
        epoch = parse(bundle)[1]
        for word, sequence, sent_ns, payload in zip(*parse_bundle(bundle, epoch), strict=True):
            kind = Kind.RETRANSMIT if word == RETRANSMIT_WORD else Kind.DATA
            self._kept.append((topic, frame(kind, epoch, sequence, sent_ns, payload)))
        return self._kept.popleft()

    def _read(self, timeout_s: float) -> tuple[bytes, Frame] | None:
        if (received := self.transport.receive(timeout_s)) is None:
            return None
        topic, octets = received[0], whole(received[1])
        if topic == HELLO_TOPIC:
            kind, epoch, number, _ = parse(octets)
            if kind is Kind.HELLO:
                self.numbers[epoch] = number
                self.echoes[epoch] = Hello.decode(octets[HEADER_OCTETS:]).heard.get(self.epoch, 0)
        return topic, octets

    def data(self, flow: str, sequence: int, payload: bytes = b"") -> None:
        """A data message with any number."""
        self.send(f"traffic/{flow}", frame(Kind.DATA, self.epoch, sequence, time.time_ns(), payload))

    def ack(self, link: twinlink.Link, flow: str, consumed: int, *sequences: int) -> None:
        """Acknowledge messages of the link."""
        now = time.time_ns()
        body = ack_body(link.epoch, consumed, [(sequence, now, now) for sequence in sequences])
        self.send(f"ack/{flow}", frame(Kind.ACK, self.epoch, 0, now, body))

    def next(self, *kinds: Kind, seconds: float = PATIENCE_S) -> bytes:
        """The next received frame of one of these kinds; others are skipped."""
        deadline = time.monotonic() + patience(seconds)
        while time.monotonic() < deadline:
            received = self.receive(0.1)
            if received is not None and check(received[1]) in kinds:
                return bytes(received[1])
        raise AssertionError(f"no {' or '.join(kind.name for kind in kinds)} came within {patience(seconds):g} s")

    def close(self) -> None:
        """Close without a goodbye, as a killed program does."""
        self.transport.close()


MakeForeign = Callable[..., ForeignPeer]


class Conformance:
    """The attributes and fixtures that the parts of the suite use.

    Attributes:
        transport: its name.
        options: of every link.
        driver: top-level module that the transport needs and that may be missing; None if it needs none.
        package: the name in the message about the missing driver; by default ``driver``.
        shares_endpoint: whether the transport accepts a second listener at an endpoint (most refuse).
        identities: whether every node has an identity, which its peers trust.
    """

    transport: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}
    driver: ClassVar[str | None] = None
    package: ClassVar[str | None] = None
    shares_endpoint: ClassVar[bool] = False
    identities: ClassVar[bool] = False
    _identities: Identities | None = None  # of the test

    @pytest.fixture(autouse=True)
    def _make_identities(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        if self.identities:
            self._identities = Identities(tmp_path_factory.mktemp("identities"))

    @pytest.fixture
    def endpoint(self) -> str:
        """The endpoint of this test's links; override it for a transport that needs another form."""
        return free_endpoint(transport_class(self.transport).ports)

    @pytest.fixture
    def opening(self, endpoint: str) -> Iterator[Open]:
        """``opening("listen" or "connect", node=..., **options)``; closed at the end of the test."""
        links: list[twinlink.Link] = []
        threads = set(threading.enumerate())

        def open_link(role: str, **options: Any) -> twinlink.Link:
            links.append(self.open(role, endpoint, **options))
            return links[-1]

        yield open_link
        for closing in [in_thread(link.close) for link in links]:
            closing.result()
        wait_until(lambda: not [t for t in set(threading.enumerate()) - threads if t.name.startswith("twinlink")])

    def open(self, role: str, endpoint: str, **options: Any) -> twinlink.Link:
        """Open a link, which the caller closes."""
        arguments: dict[str, Any] = {
            role: endpoint,
            **self.options,
            "identity": self.identity_of(options.get("node"), role),
            **options,
        }
        return twinlink.open(transport_name(self.transport), **arguments)

    def identity_of(self, node: str | None, role: str) -> Path | None:
        """The folder of an identity for a link that is opened next; None: the suite runs without identities."""
        return None if self._identities is None else self._identities.folder_of(node, role)

    @pytest.fixture(params=["listen", "connect"])
    def role(self, request: pytest.FixtureRequest) -> str:
        """The role of the first of two links."""
        return str(request.param)

    @pytest.fixture
    def pair(self, opening: Open, role: str) -> Pair:
        """Two ready links; the first listens, then connects."""
        return self.ready_pair(opening, role)

    def ready_pair(self, opening: Open, role: str = "listen", **options: Any) -> Pair:
        """Two ready links."""
        first = opening(role, node="first", **options)
        second = opening(other(role), node="second", **options)
        first.wait_ready(patience())
        second.wait_ready(patience())
        return first, second

    @pytest.fixture
    def foreign(self, endpoint: str) -> Iterator[MakeForeign]:
        """Makes foreign peers at the other end of the endpoint."""
        made: list[ForeignPeer] = []

        def make(role: str = "connect", node: str = "foreign", epoch: int | None = None) -> ForeignPeer:
            identity = self.identity_of(node, role)
            bare = self.bare_transport(endpoint, role, *([identity] if identity is not None else []))
            made.append(ForeignPeer(bare, node, epoch))
            return made[-1]

        yield make
        for peer in made:
            peer.close()

    @pytest.fixture
    def no_peer_falls_silent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Keep a foreign peer up without further hellos, however long the test takes."""
        monkeypatch.setattr(liveness, "PEER_TIMEOUT_NS", 10**15)
        monkeypatch.setattr(liveness, "HARD_TIMEOUT_NS", 10**15)

    def bare_transport(self, endpoint: str, role: str, identity: Path | None = None) -> Transport:
        """The bare transport, for foreign octets; ``identity``: folder of its identity, where nodes have one."""
        backend = transport_class(self.transport)
        options = make_options(self.transport, backend.options_class, self.options)
        transport = backend(Endpoint.parse(endpoint), role == "listen", MAX_PAYLOAD + HEADER_OCTETS, options)
        if identity is not None:
            from twinlink.identity import Identity  # needs a package that suites without identities do without
            from twinlink.identity.watched import WatchedIdentity

            transport.identity = WatchedIdentity(Identity.load(identity))
        transport.open()
        return transport

    def close_in_time(self, link: twinlink.Link) -> None:
        """Close within the contract's time."""
        with Stopwatch() as watch:
            began = watch.now()
            link.close()
            took_s = watch.now() - began
        assert took_s < patience(CLOSE_S * GENEROUS), f"close took {took_s:.1f} s"
        assert link.closed

    def plain(self, link: twinlink.Link) -> dict[str, Any]:
        """The link's counters, checked to be JSON data."""
        stats: dict[str, Any] = json.loads(json.dumps(link.stats()))
        return stats


def other(role: str) -> str:
    """The opposite role."""
    return "connect" if role == "listen" else "listen"


def in_thread(act: Callable[[], object]) -> "Running":
    """Run a function in a thread."""
    return Running(act)


class Running:
    """A thread that stores the result or exception of its function."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act
        self._result: object = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._act()
        except BaseException as error:  # raised again in `result`
            self._error = error

    def result(self, seconds: float = PATIENCE_S) -> Any:
        """The result of the function; fails if it does not end in time."""
        self._thread.join(patience(seconds))
        assert not self._thread.is_alive(), "hangs"
        if self._error is not None:
            raise self._error
        return self._result
