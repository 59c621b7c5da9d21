"""The bridge's two ends in this process: listeners that start, end and stall, and MGEN started by the library."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from twinlink_measure.mgen import egress, session
from twinlink_measure.mgen.egress import Egress
from twinlink_measure.mgen.ingress import Ingress
from twinlink_measure.mgen.script import Flow

import twinlink
from tests.mgen.conftest import Listen, Send, free_ports
from twinlink.appkit.mgen_message import Address, Flag, Packet, Protocol
from twinlink.errors import TransportError, TwinlinkError
from twinlink.testing.base import patience, wait_until

ANY = Address("127.0.0.1", 0)


class Bridge:
    """A link on loopback with an end for MGEN on either side, each in a thread of its own."""

    def __init__(
        self, endpoint: str, stack: ExitStack, *, udp: Address | None = None, tcp: Address | None = None
    ) -> None:
        self.said: list[str] = []
        near = stack.enter_context(twinlink.open("zeromq", connect=endpoint, window=4 * 2**20, send_timeout=0.2))
        far = stack.enter_context(twinlink.open("zeromq", listen=endpoint, window=4 * 2**20))
        self.near = near
        near.wait_ready(patience())
        self.into = Ingress(near, udp=ANY, tcp=ANY, say=self.said.append)
        self.out = Egress(far, udp=udp, tcp=tcp, say=self.said.append)
        stack.callback(self.into.close)
        stack.callback(self.out.close)
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=end.run, args=(self._stopped.is_set,)) for end in (self.into, self.out)
        ]
        for thread in self._threads:
            thread.start()
        stack.callback(self.stop)

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def port(self, protocol: Protocol) -> int:
        return self.into.addresses[protocol].port


Build = Callable[..., Bridge]


@pytest.fixture
def build(endpoint: str) -> Iterator[Build]:
    with ExitStack() as stack:
        yield lambda **gives: Bridge(endpoint, stack, **gives)


def packet(sequence: int, octets: int = 1000) -> bytes:
    return Packet(octets, Flag.LAST_BUFFER, 1, sequence, sequence * 1000, Address("127.0.0.1", 1)).serialize()


def test_a_listener_that_was_killed_and_one_that_comes_after_it(build: Build, listen: Listen, send: Send) -> None:
    (port,) = free_ports(1)
    first = listen("TCP", port)
    bridge = build(tcp=Address("127.0.0.1", port))
    sender = send("TCP", bridge.port(Protocol.TCP), 102_400, 100, 100)
    first.wait_for(20)
    first.kill()
    wait_until(lambda: any("wait for a new connection" in text for text in bridge.said))
    second = listen("TCP", port)
    sender.wait()
    wait_until(lambda: bridge.out.stats()["forwarded"] == 100)
    bridge.stop()
    stats = bridge.out.stats()
    assert (stats["tcp"], stats["held"]) == (100, 0)
    wait_until(lambda: second.received() and second.received()[-1].sequence == 99)
    taken = [one.sequence for one in second.received() if one.complete]
    # From the first message that the first listener's host had not acknowledged, all of them, in order, whole.
    assert taken == list(range(taken[0], 100))
    assert second.log().of("RERR") == []
    killed_with = set(range(taken[0])) - {one.sequence for one in first.received() if one.complete}
    assert len(killed_with) * 102_400 < 8 * 1024 * 1024  # no more than its socket's buffer may have held


def test_messages_wait_for_a_listener(build: Build, listen: Listen, send: Send) -> None:
    udp, tcp = free_ports(2)
    datagrams = listen("UDP", udp)
    bridge = build(udp=Address("localhost", udp), tcp=Address("localhost", tcp))
    send("TCP", bridge.port(Protocol.TCP), 10_240, 50).wait()
    send("UDP", bridge.port(Protocol.UDP), 100, 50).wait()
    datagrams.wait_for(50)  # though TCP messages wait
    listener = listen("TCP", tcp)
    listener.wait_for(50)
    assert [one.sequence for one in listener.received()] == list(range(50))
    assert bridge.out.stats()["resent"] == 0


def test_a_listener_that_takes_nothing_holds_the_sender_back(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Window, sockets and what the bridge holds fill up; then the sender waits, and nothing is lost."""
    monkeypatch.setattr(egress, "HELD_OCTETS", 1_000_000)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        bridge = build(tcp=Address(*server.getsockname()))
        listener, _ = server.accept()
        message = packet(0, 60_000)
        sent = 0
        with socket.create_connection(("127.0.0.1", bridge.port(Protocol.TCP))) as sender:
            sender.settimeout(1)
            held_back = False
            while not (held_back and any("it waits, and MGEN with it" in text for text in bridge.said)):
                assert sent < 1_000_000_000
                try:
                    sent += sender.send(message[sent % 60_000 :])
                    held_back = False
                except TimeoutError:
                    held_back = True
            assert bridge.out.stats()["held"] > 0
            messages = sent // 60_000
            listener.settimeout(patience())
            taken = 0
            with listener:
                while taken < 60_000 * messages:
                    taken += len(listener.recv(1_000_000))
        wait_until(lambda: bridge.into.stats()["acknowledged"] == messages)
        assert bridge.into.stats()["lost"] == 0


def test_what_is_no_message_of_a_bridge(build: Build, listen: Listen) -> None:
    (port,) = free_ports(1)
    listener = listen("UDP", port)
    bridge = build(udp=Address("127.0.0.1", port))
    sender = bridge.near.sender("mgen")
    for payload in (b"", b"\1", b"\1" + b"x" * 100, b"\3" + packet(0), packet(0)):
        sender.send(payload)
    sender.send(b"\2" + packet(1))
    sender.send(b"\1" + packet(2))
    listener.wait_for(1)
    wait_until(lambda: bridge.out.stats()["forwarded"] == 1)  # it counts what has gone
    stats = bridge.out.stats()
    assert (stats["malformed"], stats["unwanted"]) == (5, 1)
    assert listener.log().of("RERR") == []


def test_a_message_longer_than_the_link_takes(endpoint: str) -> None:
    with twinlink.open("zeromq", listen=endpoint, max_payload=100_000) as far, ExitStack() as stack:
        near = stack.enter_context(twinlink.open("zeromq", connect=endpoint, max_payload=100_000))
        receiver = far.receiver("mgen")
        into = Ingress(near, tcp=ANY)
        stack.callback(into.close)
        near.wait_ready(patience())
        stopped = threading.Event()
        thread = threading.Thread(target=into.run, args=(stopped.is_set,))
        thread.start()
        begin, end = bytearray(packet(0, 60_000)), bytearray(packet(0, 60_000))
        begin[3], end[3] = Flag.CONTINUES, Flag.END_OF_MSG
        with socket.create_connection(into.addresses[Protocol.TCP]) as sender:
            sender.sendall(begin + end + packet(1))
            arrived = receiver.receive(patience())
        assert arrived is not None
        assert bytes(arrived.payload) == bytes([Protocol.TCP]) + packet(1)
        stopped.set()
        thread.join()
        assert into.stats()["too_long"] == 1


def test_a_port_in_use(endpoint: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, twinlink.open("zeromq", listen=endpoint) as link:
        address = Address(*taken.getsockname())
        with pytest.raises(TransportError, match=rf"TCP 127\.0\.0\.1:{address.port}: Address already in use"):
            Ingress(link, udp=ANY, tcp=address)


@pytest.mark.parametrize("octets", [100, 10_240])
def test_a_cell_of_a_sweep(build: Build, mgens: list[object], octets: int, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    protocol = Protocol.UDP if octets == 100 else Protocol.TCP
    at = Address("127.0.0.1", port)
    bridge = build(**{protocol.name.lower(): at})
    flow = Flow(1, protocol, bridge.into.addresses[protocol], octets, 50, 200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "QUIET_S", patience())  # they will come, whenever this machine brings them
        outcome = session.run(flow, at, tmp_path, "cell", listener_prefix=["nice", "-n", "0"])
    assert outcome[2:] == (50, 50, 0, 0, None)
    assert [path.name for path in (outcome.sender_log, outcome.listener_log)] == ["cell.tx.drc", "cell.rx.drc"]
    bridge.stop()
    lost = session.run(flow, at, tmp_path, "lost", timeout_s=0)  # without a bridge
    assert (lost.sent, lost.received) == (50, 0) if protocol is Protocol.UDP else lost.received == 0


@pytest.mark.parametrize("protocol", list(Protocol))
def test_an_mgen_at_a_port_in_use(mgens: list[object], protocol: Protocol, tmp_path: Path) -> None:
    """It logs LISTEN all the same, and ends with 0."""
    with socket.socket(type=socket.SOCK_DGRAM if protocol is Protocol.UDP else socket.SOCK_STREAM) as taken:
        taken.bind(("0.0.0.0", 0))
        if protocol is Protocol.TCP:
            taken.listen()
        at = Address(*taken.getsockname())
        with (
            pytest.raises(TwinlinkError, match=rf"at {protocol.name} port {at.port}: .*Address already in use"),
            session.Listener(at, protocol, tmp_path / "x"),
        ):
            pass


def test_an_mgen_that_does_not_start(mgens: list[object], tmp_path: Path) -> None:
    with (
        pytest.raises(TwinlinkError, match=r"mgen does not listen at UDP port 0: .*nsuch"),
        session.Listener(ANY, Protocol.UDP, tmp_path / "x", ["ip", "netns", "exec", "nsuch"]),
    ):
        pass
    with pytest.raises(TwinlinkError, match="mgen does not send"):
        session.send(Flow(1, Protocol.UDP, Address("not an address", 1), 100, 1), tmp_path / "y")
