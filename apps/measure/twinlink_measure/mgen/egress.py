"""The end of the bridge where MGEN listens: from the link to a UDP port and over a TCP connection.

MGEN has no acknowledgements, but TCP has: messages that the listener's host has not acknowledged when a connection
breaks are sent again, whole, over the next one.  Without a TCP listener, messages are held up to a limit, beyond which
nothing is read from the link: the sender then waits.
"""

import time
from collections.abc import Callable
from typing import Any

from twinlink_results.mgen.records import Recorder, Row

from twinlink import Link, Message
from twinlink.appkit import mgen_message as message
from twinlink.appkit.mgen_message import Address, Flag, Protocol
from twinlink.errors import MalformedPayload

from .outputs import Connection, Datagrams, Say

HELD_OCTETS = 16 * 1024 * 1024  # without a TCP listener, or for a slow one
LOOK_S = 0.1
_SOON_S = 0.01  # while something is held


class Egress:
    """Delivers the messages of a flow to MGEN listeners, octet for octet as `Ingress` received them.

    Attributes:
        last_mono_ns: when the last message came, monotonic; 0 before the first.
    """

    def __init__(
        self,
        link: Link,
        *,
        udp: Address | None = None,
        tcp: Address | None = None,
        flow: str = "mgen",
        recorder: Recorder | None = None,
        say: Say = lambda text: None,
    ) -> None:
        """Connect to a TCP listener as soon as there is one.

        Args:
            link: stays open when this is closed.
            udp, tcp: where MGEN listens.
            flow: of the link.
            recorder: gets a row for each message.
            say: gets a line of text when something is wrong.

        Raises:
            TransportError: a host name does not resolve.
        """
        self._receiver = link.receiver(flow)
        self._recorder = recorder
        self._say = say
        self._udp = Datagrams(udp, say) if udp else None
        self._tcp = Connection(tcp, say) if tcp else None
        self._counts = dict.fromkeys(("udp", "tcp", "octets", "malformed", "unwanted"), 0)
        self.last_mono_ns = 0

    def run(self, stopped: Callable[[], bool]) -> None:
        """Carry messages until ``stopped()``.

        Messages received by then are still delivered, within a second.
        """
        tcp = self._tcp
        while not stopped():
            if tcp:
                tcp.push()
            if tcp and tcp.held_octets > HELD_OCTETS:
                tcp.wait(LOOK_S)
            else:
                arrived = self._receiver.receive(timeout=_SOON_S if tcp and not tcp.settled else LOOK_S)
                if arrived is not None:
                    self._forward(arrived)
            if self._recorder:
                self._recorder.write()
        until = time.monotonic() + 1
        while time.monotonic() < until and (arrived := self._receiver.receive(timeout=0)) is not None:
            self._forward(arrived)
        if tcp:
            tcp.finish(until - time.monotonic())
        if self._udp:
            self._udp.look()

    def stats(self) -> dict[str, Any]:
        """Counters.

        ``udp``, ``tcp`` messages that came over the link and their ``octets``; ``forwarded`` to the listeners;
        ``held`` without a TCP listener, or not acknowledged by its host; ``resent`` of the forwarded
        ones after a connection broke; ``refused`` datagrams because nothing listened, as far as the host reports;
        ``failed`` datagrams that the host did not send; ``unwanted`` without a destination for their protocol;
        ``malformed``: not from a bridge.
        """
        tcp, udp = self._tcp, self._udp
        return {
            **self._counts,
            "forwarded": (tcp.forwarded if tcp else 0) + (udp.forwarded if udp else 0),
            "held": tcp.held if tcp else 0,
            "resent": tcp.resent if tcp else 0,
            "refused": udp.refused if udp else 0,
            "failed": udp.failed if udp else 0,
        }

    def close(self) -> None:
        """Close the sockets."""
        for one in (self._udp, self._tcp):
            if one:
                one.close()

    def _forward(self, arrived: Message) -> None:
        self.last_mono_ns = time.monotonic_ns()
        payload = memoryview(arrived.payload)
        try:
            if len(payload) <= message.MIN_OCTETS:
                raise MalformedPayload(f"{len(payload)} octets are too few")
            protocol = Protocol(payload[0])
            packet = message.start(payload, 1)
        except ValueError as error:  # MalformedPayload included
            self._counts["malformed"] += 1
            if self._counts["malformed"] in (1, 10, 100, 1000):
                count = self._counts["malformed"]
                self._say(f"a message on flow {arrived.flow} is none of a bridge: {error} ({count} so far)")
            return
        octets = payload[1:]
        self._counts[protocol.name.lower()] += 1
        self._counts["octets"] += len(octets)
        to = self._udp if protocol is Protocol.UDP else self._tcp
        if to is None:
            self._counts["unwanted"] += 1
            if self._counts["unwanted"] == 1:
                self._say(f"a message came by {protocol.name}, and nothing says where such messages go: it is dropped")
            return
        to.send(octets)
        if self._recorder:
            self._recorder.add(
                Row(
                    "out",
                    f"{arrived.epoch:016x}",
                    arrived.sequence,
                    protocol.name.lower(),
                    packet.flow,
                    packet.sequence,
                    packet.sent_ns,
                    len(octets),
                    _count_fragments(octets),
                    sent_ns=arrived.sent_ns,
                    peer_received_ns=arrived.received_ns,
                    forwarded_ns=time.time_ns() if to.settled else None,
                )
            )


def _count_fragments(octets: memoryview) -> int:
    offset, count = 0, 0
    while offset + message.HEADER.size <= len(octets):
        size, _, flags = message.HEADER.unpack_from(octets, offset)[:3]
        offset += max(size, 1)
        count += 1
        if not flags & Flag.CONTINUES:
            break
    return count
