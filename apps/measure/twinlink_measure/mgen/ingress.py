"""The end of the bridge where MGEN sends to: from UDP datagrams and TCP connections onto the link.

Nothing is read while no peer is up or the link's window is full: TCP then holds MGEN back, and datagrams wait in the
socket's buffer, where the kernel counts those that overflow it.  So every loss is counted.
"""

import contextlib
import errno
import selectors
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from twinlink_results.mgen.records import Recorder, Row

from twinlink import Ack, Link
from twinlink.appkit import mgen_message as message
from twinlink.appkit.mgen_message import Address, Protocol
from twinlink.errors import AckTimeout, MalformedPayload, SendTimeout, TransportError
from twinlink.process.ip_address import listening_socket
from twinlink.process.resolver import listen_addresses

from .stream import Stream

# octets of the UDP socket: 500 datagrams of 8192 B, while another program runs
RECEIVE_BUFFER = 4 * 1024 * 1024
MAX_CONNECTIONS = 256
LOOK_S = 0.1  # between two checks of ``stopped`` while waiting
_TURN = 64  # datagrams read before other sockets have their turn
_ALONE_S = 0.02  # between two checks for a peer
_MAX_DATAGRAM = 65535
_MAX_WAITING = 100_000  # unacknowledged messages
_COUNTED = ("udp", "tcp", "octets", "sent", "acknowledged", "malformed", "incomplete", "too_long", "given_up")

# linux/asm-generic/socket.h; not in the standard library
_SO_RCVBUFFORCE = 33
_SO_MEMINFO = 55
_MEMINFO = struct.Struct("=9I")
_DROPS = 8


class Ingress:
    """Receives messages from MGEN senders and sends each as one message of a flow.

    The payload on the link is one octet for the protocol (`message.Protocol`), then the message unchanged.
    """

    def __init__(
        self,
        link: Link,
        *,
        udp: Address | None = None,
        tcp: Address | None = None,
        flow: str = "mgen",
        recorder: Recorder | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Listen at once.

        Args:
            link: stays open when this is closed.
            udp, tcp: where to listen, at every address of a name; port 0 takes a free port, see `addresses`.
            flow: of the link.
            recorder: gets a row for each message.
            say: gets a line of text when something is wrong.

        Raises:
            TransportError: an address cannot be used.
        """
        self._link = link
        self._sender = link.sender(flow, on_ack=self._acknowledged)
        self._recorder = recorder
        self._waiting: dict[int, Row | None] = {}  # unacknowledged messages
        self._next = self._sender.stats()["sent"]  # number of the next message; this is the flow's only sender
        self._say = say
        self._limit = link.max_payload - 1
        self._counts = dict.fromkeys(_COUNTED, 0)
        self._connections: dict[socket.socket, Stream] = {}
        self._selector = selectors.DefaultSelector()
        self._datagram = memoryview(bytearray(1 + _MAX_DATAGRAM))
        self._datagram[0] = Protocol.UDP
        self.last_mono_ns = 0
        self._ends = False
        self.addresses: dict[Protocol, Address] = {}
        self._udp: list[socket.socket] = []
        self._tcp: list[socket.socket] = []
        try:
            if udp:
                self._listen(Protocol.UDP, udp, self._udp)
            if tcp:
                self._listen(Protocol.TCP, tcp, self._tcp)
        except BaseException:
            self.close()
            raise

    def run(self, stopped: Callable[[], bool]) -> None:
        """Carry messages until ``stopped()``.

        Messages received by then are still sent, and acknowledged, within a second.
        """
        while not stopped():
            if self._link.peers():
                self._turn(LOOK_S, stopped)
            else:
                time.sleep(_ALONE_S)
            if self._recorder:
                self._recorder.write()
        self._ends = True
        until = time.monotonic() + 1
        while time.monotonic() < until and self._turn(0, lambda: time.monotonic() > until):
            pass
        for connection in list(self._connections):
            self._end(connection)
        with contextlib.suppress(AckTimeout):
            self._sender.flush(timeout=1)
        for number in list(self._waiting):
            self._record(self._waiting.pop(number, None))

    def stats(self) -> dict[str, Any]:
        """Counters.

        ``udp``, ``tcp`` messages received and their ``octets``; ``sent`` on the link; ``acknowledged`` by at least one
        peer; ``lost``, the others of these; ``dropped`` by the kernel: datagrams that came faster than the link took
        them; ``malformed`` datagrams and TCP connections that are not MGEN's; ``incomplete`` TCP messages;
        ``too_long`` for the link; ``given_up`` messages at the end, when no peer was up or the link took none.
        """
        streams = list(self._connections.values())
        return {
            **self._counts,
            "incomplete": self._counts["incomplete"] + sum(stream.incomplete for stream in streams),
            "too_long": self._counts["too_long"] + sum(stream.too_long for stream in streams),
            "lost": self._counts["sent"] - self._counts["acknowledged"],
            "dropped": self._drops(),
        }

    def close(self) -> None:
        """Close the sockets."""
        self._counts = dict(self._counts, dropped=self._drops())
        for one in (*self._udp, *self._tcp, *self._connections):
            one.close()
        self._udp = []
        self._selector.close()

    def _listen(self, protocol: Protocol, at: Address, listeners: list[socket.socket]) -> None:
        """Add a listener for each address of the host.  Raises TransportError."""
        kind = socket.SOCK_DGRAM if protocol is Protocol.UDP else socket.SOCK_STREAM
        try:
            for host in listen_addresses(at.host):
                one = listening_socket(host, self.addresses.get(protocol, at).port, kind)
                listeners.append(one)
                one.setblocking(False)
                if protocol is Protocol.UDP:
                    self._enlarge(one)
                else:
                    one.listen()
                self._selector.register(one, selectors.EVENT_READ)
                self.addresses.setdefault(protocol, Address(*one.getsockname()[:2]))
        except OSError as error:
            text = f"cannot listen at {protocol.name} {at}: {error.strerror or error}"
            if error.errno == errno.EADDRINUSE:
                text += "; `ss -lntup` shows by which program: end it, or take another port"
            raise TransportError(text) from error

    def _enlarge(self, one: socket.socket) -> None:
        try:
            one.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER)
        except OSError:  # not root
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        has = one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2  # the kernel reports twice the requested size
        if has < RECEIVE_BUFFER:
            self._say(
                f"the UDP socket has a buffer of {has} octets; for {RECEIVE_BUFFER}, which a burst may need: "
                f"sysctl -w net.core.rmem_max={RECEIVE_BUFFER}"
            )

    def _drops(self) -> int:
        if not self._udp:
            return int(self._counts.get("dropped", 0))
        infos = [one.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size) for one in self._udp]
        return sum(int(_MEMINFO.unpack(info)[_DROPS]) for info in infos)

    def _turn(self, timeout_s: float, stopped: Callable[[], bool]) -> bool:
        """Receive what is pending; returns whether there was anything."""
        ready = self._selector.select(timeout_s)
        for key, _ in ready:
            one = key.fileobj
            assert isinstance(one, socket.socket)
            if one in self._udp:
                self._take_datagrams(one, stopped)
            elif one in self._tcp:
                self._accept(one)
            else:
                self._take_octets(one, stopped)
        return bool(ready)

    def _take_datagrams(self, one: socket.socket, stopped: Callable[[], bool]) -> None:
        room = self._datagram[1:]
        for _ in range(_TURN):
            try:
                octets = one.recv_into(room)
            except BlockingIOError:
                return
            taken_ns = time.time_ns()
            try:
                if octets < message.MIN_OCTETS:
                    raise MalformedPayload(f"{octets} octets, less than MGEN's {message.MIN_OCTETS}")
                packet = message.start(room)
            except MalformedPayload as error:
                self._count("malformed", 1, f"a UDP datagram is no MGEN message: {error}")
                continue
            self._counts["udp"] += 1
            self._send(self._datagram[: 1 + octets], packet.flow, packet.sequence, packet.sent_ns, 1, taken_ns, stopped)

    def _accept(self, listener: socket.socket) -> None:
        if len(self._connections) == MAX_CONNECTIONS:  # another listener took the last
            return
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError:  # it is gone, or descriptors are exhausted: then it waits in the backlog
            time.sleep(_ALONE_S)
            return
        connection.setblocking(False)
        self._connections[connection] = Stream(self._limit)
        self._selector.register(connection, selectors.EVENT_READ)
        if len(self._connections) == MAX_CONNECTIONS:
            for one in self._tcp:
                self._selector.unregister(one)

    def _take_octets(self, connection: socket.socket, stopped: Callable[[], bool]) -> None:
        stream = self._connections[connection]
        try:
            octets = connection.recv_into(stream.room())
            # MGEN leaves Nagle's algorithm on: the last fragment of a message waits until the one before is
            # acknowledged, which the kernel delays by 40 ms.  The kernel resets this option, so it is set each time.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        except BlockingIOError:
            return
        except OSError:
            octets = 0
        taken_ns = time.time_ns()
        try:
            for whole in stream.feed(octets):
                self._counts["tcp"] += 1
                self._send(*whole, taken_ns, stopped)
        except MalformedPayload as error:
            self._count("malformed", 1, f"a TCP connection that brings no MGEN messages was closed: {error}")
            self._end(connection)
            return
        if not octets:
            self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        stream = self._connections.pop(connection)
        self._selector.unregister(connection)
        connection.close()
        if len(self._connections) == MAX_CONNECTIONS - 1:
            for one in self._tcp:
                self._selector.register(one, selectors.EVENT_READ)
        stream.finish()
        self._count("incomplete", stream.incomplete, "a TCP message without its last fragment is not carried")
        self._count(
            "too_long", stream.too_long, f"a message longer than the link's {self._limit} octets is not carried"
        )

    def _count(self, what: str, number: int, text: str) -> None:
        """Count, and report the first, the tenth, the hundredth, and so on."""
        before = self._counts[what]
        self._counts[what] += number
        if number and (not before or len(str(before)) < len(str(before + number))):
            self._say(f"{text} ({before + number} so far)")

    def _send(
        self,
        octets: memoryview,
        flow: int,
        sequence: int,
        mgen_sent_ns: int,
        fragments: int,
        taken_ns: int,
        stopped: Callable[[], bool],
    ) -> None:
        self.last_mono_ns = time.monotonic_ns()
        self._counts["octets"] += len(octets) - 1
        row = None
        if self._recorder:
            row = Row(
                "in",
                f"{self._link.epoch:016x}",
                self._next,
                Protocol(octets[0]).name.lower(),
                flow,
                sequence,
                mgen_sent_ns,
                len(octets) - 1,
                fragments,
                taken_ns,
            )
        self._waiting[self._next] = row  # before it is sent: the ack comes on another thread
        if len(self._waiting) > _MAX_WAITING:
            self._record(self._waiting.pop(next(iter(self._waiting)), None))
        told = False
        while not self._ends or self._link.peers():
            try:
                self._sender.send(octets)
                self._next += 1
                self._counts["sent"] += 1
                return
            except SendTimeout as error:
                if stopped():
                    break
                if not told:
                    self._say(f"{error}; it waits, and MGEN with it")
                told = True
        self._waiting.pop(self._next, None)
        self._counts["given_up"] += 1

    def _acknowledged(self, ack: Ack) -> None:
        if ack.sequence not in self._waiting:
            return  # from a second peer
        self._counts["acknowledged"] += 1
        row = self._waiting.pop(ack.sequence, None)
        if row is not None:
            row = row._replace(
                sent_ns=ack.sent_ns,
                peer_received_ns=ack.peer_received_ns,
                peer_sent_ns=ack.peer_sent_ns,
                received_ns=ack.received_ns,
                rtt_ns=ack.rtt_ns,
            )
        self._record(row)

    def _record(self, row: Row | None) -> None:
        if self._recorder and row:
            self._recorder.add(row)
