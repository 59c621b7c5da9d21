"""Measure the round-trip time of messages to a peer that runs `twinlink pong`, and count what is lost.

The acknowledgement of each message has four timestamps, so the time that the message spent at the peer (residence time)
is known.  The second figure of each line excludes it.
"""

import argparse
import os
import time
from queue import SimpleQueue

from twinlink import Ack, AckTimeout, Link, PeerTimeout, SendTimeout

from ..appkit import convert, linking
from ..appkit.console import DONE, NOT_MET, Output, Stop, log
from ..appkit.options import Parser
from .ping_statistics import PingStatistics, table

_NAME = "twinlink ping"
EXAMPLES = """
twinlink ping 10.0.0.5                   # one message a second, until Ctrl-C
twinlink ping -c 1000 -i 0 -q twin:7447  # back to back; the summary
twinlink ping -c 10 -s 64KB 10.0.0.5 --transport zenoh
twinlink ping --listen tcp/0.0.0.0:7447  # where only the peer may connect
twinlink ping -c 100 10.0.0.5 --json     # for a script
"""
_NO_PEER_S = 0.5  # between messages while no peer is up, with --interval 0


def add_options(parser: Parser) -> None:
    """Declare the options."""
    linking.add_options(parser, listens=False, flow="ping", host="twinlink pong")
    parser.add_argument(
        "-c", "--count", type=convert.count, metavar="N", help="messages to send; by default until Ctrl-C"
    )
    parser.add_argument(
        "-i",
        "--interval",
        type=convert.seconds,
        default=1.0,
        metavar="S",
        help="time between messages in s; 0 sends the next when the last is answered",
    )
    parser.add_argument(
        "-s", "--size", type=convert.octets, default=64, metavar="B", help="octets of payload, such as 64, 64KB or 1MB"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print the summary only")
    linking.add_timeout_option(parser, "wait for the peer, and for the last answers")


def run(given: argparse.Namespace) -> int:
    """Send, print each answer and the summary."""
    with Stop() as stop:
        with linking.open_link(given) as link:
            linking.check_size(given, link)
            pinger = _Pinger(given, link)
            try:
                linking.wait_for_peer(link, stop, given, _NAME, "twinlink pong")
            except PeerTimeout:
                if given.json:
                    pinger.summary()  # scripts read the summary even if no peer was found
                raise
            pinger.run(stop)
        return pinger.summary()  # after close, which delivers every answer that arrived


class _Pinger:
    def __init__(self, given: argparse.Namespace, link: Link) -> None:
        self._given = given
        self._link = link
        self._watch = linking.Watch(_NAME, link)
        self._answers: SimpleQueue[Ack] = SimpleQueue()
        # no retransmission: it would hide losses
        self._sender = link.sender(given.flow, on_ack=self._answers.put, reliability="detect")
        self._output = Output(given.json)
        self._sent = 0
        self._refused = False  # the link has refused a message
        self._began = self._ended = 0.0  # the first message, the last answer or message
        self._statistics = PingStatistics()

    def run(self, stop: Stop) -> None:
        """Send on schedule and print the answers as they arrive; then wait for the last ones."""
        given, payload = self._given, os.urandom(self._given.size)
        due = self._began = time.monotonic()
        while not stop.requested and (given.count is None or self._sent < given.count):
            try:
                self._sender.send(payload)
            except SendTimeout as error:
                log(_NAME, str(error))
                self._refused = True
                break
            self._sent += 1
            due += given.interval
            self._collect(due if given.interval else time.monotonic() + given.timeout, stop)
            if given.interval:
                stop.wait(due - time.monotonic())
            elif not self._link.peers():
                stop.wait(_NO_PEER_S)
        # Ctrl-C stops sending; answers that are still due do not count as lost.
        self._ended = time.monotonic()
        self._collect(time.monotonic() + given.timeout, None)

    def _collect(self, end: float, stop: Stop | None) -> None:
        """Print the answers that are there, and those until ``end``, or until no message is unacknowledged."""
        self._drain()  # also where messages take longer than the interval, so that nothing is left until ``end``
        settled = False
        while not settled and not (stop and stop.requested) and (left := end - time.monotonic()) > 0:
            try:
                self._sender.flush(timeout=min(left, linking.LOOK_S))  # the waiting thread receives
                settled = True
            except AckTimeout:
                pass  # unacknowledged: the summary counts them
            self._drain()

    def _drain(self) -> None:
        self._watch.tell()
        while not self._answers.empty():
            ack = self._answers.get()
            self._statistics.add(ack)
            self._ended = time.monotonic()
            if not self._given.quiet:
                self._tell(ack)

    def _tell(self, ack: Ack) -> None:
        residence_ns = ack.peer_sent_ns - ack.peer_received_ns
        net_rtt_ns = ack.rtt_ns - residence_ns
        node = self._watch.node(ack.epoch)
        self._output.emit(
            {
                "type": "answer",
                "sequence": ack.sequence,
                "node": node,
                "octets": self._given.size,
                "rtt_ns": ack.rtt_ns,
                "rtt_without_residence_ns": net_rtt_ns,
                "sent_ns": ack.sent_ns,
                "peer_received_ns": ack.peer_received_ns,
                "peer_sent_ns": ack.peer_sent_ns,
                "received_ns": ack.received_ns,
            },
            f"{self._given.size} B to {node or 'peer'}: sequence {ack.sequence}, rtt {ack.rtt_ns / 1e6:.3f} ms "
            f"({net_rtt_ns / 1e6:.3f} ms without residence)",
        )

    def summary(self) -> int:
        """Print it; returns the exit code."""
        self._drain()
        acknowledged = self._sender.stats()["acknowledged"]
        lost = self._sent - acknowledged
        elapsed_s = max(0.0, self._ended - self._began)
        figures = self._statistics.figures()
        text = (
            f"\n{linking.endpoint(self._given)}, flow {self._given.flow}:\n"
            f"{self._sent} sent, {acknowledged} answered, {lost} lost ({lost / max(1, self._sent):.1%}) "
            f"in {elapsed_s:.3f} s"
        )
        self._output.emit(
            {
                "transport": self._given.transport,
                "flow": self._given.flow,
                "octets": self._given.size,
                "sent": self._sent,
                "acknowledged": acknowledged,
                "lost": lost,
                "elapsed_ns": round(elapsed_s * 1e9),
                **figures,
            },
            "\n".join((text, *table(figures))),
        )
        return DONE if self._sent and not lost and not self._refused else NOT_MET
