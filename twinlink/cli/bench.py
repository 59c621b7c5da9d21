"""Measure throughput and round-trip time to a peer that runs `twinlink pong`, in one line.

Small messages, each sent when the last is answered, give the round-trip time of the idle link; then long ones, sent as
fast as the peer acknowledges them, the throughput, of payload.  The direction is from here to the peer.  `twinlink
sweep --peer` measures both directions, several payloads and transports, and delays under load.
"""

import argparse
import os
import time
from array import array

from twinlink import Ack, AckTimeout, Link, SendTimeout
from twinlink.errors import PeerTimeout
from twinlink.protocol.rtt import percentiles

from ..appkit import convert, linking
from ..appkit.console import DONE, NOT_MET, Output, Stop
from ..appkit.formatting import decimal, listed, payload
from ..appkit.options import Parser
from ..process.text import on_one_line
from . import rate

_NAME = "twinlink bench"
_PONG = "twinlink pong"
EXAMPLES = """
twinlink bench 10.0.0.5                 # `twinlink pong` runs there
twinlink bench 10.0.0.5 --transport zenoh --size 1MB --time 10
twinlink bench twin:7447 --json         # for a script
"""
_RETENTION = 16 * 1024 * 1024  # octets that are kept here at most
_AHEAD_S, _AHEAD_OCTETS = 1.0, 256 * 1024  # unacknowledged at most: what the path takes in that time, at least so much
_SMALL_OCTETS = 64
_IDLE_MESSAGES, _IDLE_S = 1000, 1.0  # of the idle link: so many, as far as they fit
_CONSUMED_S = 1.0  # a pong takes a message at once; its link tells so within 0.1 s


def add_options(parser: Parser) -> None:
    """Declare the options."""
    linking.add_options(parser, listens=False, flow="ping", host=_PONG)
    parser.add_argument(
        "-s",
        "--size",
        type=convert.octets,
        default=64 * 1024,
        metavar="B",
        help="octets of a long message, such as 100, 64KB or 1MB",
    )
    parser.add_argument(
        "-t", "--time", type=convert.above_0, default=3.0, metavar="S", help="how long to send long messages, in s"
    )
    linking.add_timeout_option(parser, "wait for the peer, and for the last answers")


def run(given: argparse.Namespace) -> int:
    """Measure, and print the line; 1 if no pong answers, or something was lost."""
    given.option = [("retention", max(_RETENTION, 4 * given.size)), *(given.option or [])]
    with Stop() as stop, linking.open_link(given) as link:
        linking.check_size(given, link)
        linking.wait_for_peer(link, stop, given, _NAME, _PONG)
        bench = _Bench(given, link, stop)
        bench.idle()
        bench.load()
        return bench.summary()


class _Bench:
    def __init__(self, given: argparse.Namespace, link: Link, stop: Stop) -> None:
        self._given, self._link, self._stop = given, link, stop
        self._peers = link.peers()
        self._rtts_ns = array("q")
        self._answered_s = self._began_s = 0.0
        self._sent = self._acknowledged = 0  # in the second phase
        self._before = 0  # acknowledged when the second phase began
        self._sender = link.sender(given.flow, on_ack=self._on_ack)

    def _on_ack(self, ack: Ack) -> None:
        self._answered_s = time.monotonic()
        if self._began_s:  # most of a round trip is now the wait behind other messages
            self._acknowledged += 1
        else:
            self._rtts_ns.append(ack.rtt_ns)

    def idle(self) -> None:
        """One message at a time.  Raises PeerTimeout if no program takes them."""
        octets, end = os.urandom(_SMALL_OCTETS), time.monotonic() + _IDLE_S
        for number in range(_IDLE_MESSAGES):
            self._sender.send(octets)
            self._flush(self._given.timeout)
            if not number:
                self._check_consumed()
            if self._stop.requested or time.monotonic() > end:
                break

    def _check_consumed(self) -> None:
        """A link acknowledges also what no program takes: that would be held there, and then be lost."""
        end = time.monotonic() + _CONSUMED_S
        while self._sender.stats()["in_flight_octets"]:
            if self._stop.wait(0.01) or not self._link.peers():
                return
            if time.monotonic() > end:
                raise PeerTimeout(
                    f"{', '.join(map(on_one_line, self._peers))} acknowledges, but no program there takes flow "
                    f"{self._given.flow}: run `{_PONG}` there"
                )

    def load(self) -> None:
        """As fast as they are acknowledged, and not far ahead of that: on a slow path the end would wait for it."""
        octets = os.urandom(self._given.size)
        self._began_s = self._answered_s = time.monotonic()
        self._before = self._sender.stats()["acknowledged"]
        while not self._stop.requested and time.monotonic() - self._began_s < self._given.time:
            if not self._may_send():
                self._link._wait(self._may_send, linking.LOOK_S)
                if not self._link.peers():
                    break
                continue
            try:
                self._sender.send(octets)
                self._sent += 1
            except SendTimeout:
                if not self._link.peers():
                    break
        self._flush(self._given.timeout)

    def _may_send(self) -> bool:
        """Whether no more is unacknowledged than the path takes soon."""
        rate_hz = self._acknowledged / max(self._answered_s - self._began_s, 1e-3)
        most: float = max(rate_hz * _AHEAD_S, _AHEAD_OCTETS / max(1, self._given.size), 1)
        return self._sent - self._acknowledged <= most

    def _flush(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._stop.requested and (left := end - time.monotonic()) > 0:
            try:
                self._sender.flush(timeout=min(left, linking.LOOK_S))
                return
            except AckTimeout:  # what stays unacknowledged is counted
                continue

    def summary(self) -> int:
        """Print it; returns the exit code."""
        given, stats = self._given, self._sender.stats()
        sent, acknowledged = self._sent, stats["acknowledged"] - self._before
        lost, open_ = stats["lost"], stats["outstanding"]
        speed = rate.figures(acknowledged, acknowledged * given.size, self._answered_s - self._began_s)
        rtt_ns = percentiles(self._rtts_ns) if self._rtts_ns else None
        counts = f"{lost} lost" + (f", {open_} not acknowledged" if open_ else "")
        Output(given.json).emit(
            {
                "transport": given.transport,
                "flow": given.flow,
                "peers": self._peers,
                "octets": given.size,
                "sent": sent,
                "acknowledged": acknowledged,
                "lost": lost,
                **speed,
                "rtt_ns": rtt_ns,
            },
            f"{listed(map(on_one_line, self._peers))}: {bit_rate(speed['goodput_mb_s'])} in messages of "
            f"{payload(given.size)}, {counts}; RTT {_rtt(rtt_ns)}",
        )
        return DONE if acknowledged and not lost and not open_ else NOT_MET


def bit_rate(goodput_mb_s: float | None) -> str:
    """In the unit that suits it, as iperf3 has it."""
    if goodput_mb_s is None:
        return "no throughput"
    bits = goodput_mb_s * 8e6
    unit, one = next((each for each in (("G", 1e9), ("M", 1e6), ("k", 1e3)) if bits >= each[1]), ("", 1.0))
    return f"{decimal(bits / one)} {unit}bit/s"


def _rtt(rtt_ns: dict[str, int] | None) -> str:
    if rtt_ns is None:
        return "unknown"
    return ", ".join(f"{name} {decimal(rtt_ns[name] / 1e6)}" for name in ("min", "p50", "p99", "max")) + " ms"
