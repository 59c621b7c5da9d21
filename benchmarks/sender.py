"""A sender process, for measurements that the sweep's workers do not make: `python -m benchmarks.sender`.

Commands are lines on stdin; each answer is a line of JSON.  The first argument selects the mode:

    stalled TRANSPORT ENDPOINT         connects, and sends 1 MB messages to a peer that is stopped meanwhile
    fan-out SUBJECT ENDPOINT           listens, and sends to all that have connected, at a rate
    two-flows TRANSPORT ENDPOINT       connects, and sends on a flow with repair and on one that only detects
    batches TRANSPORT ENDPOINT         connects, and sends the rows of an array
    takes-batches TRANSPORT ENDPOINT   listens, and receives them
    by-reference, takes-by-reference   bare pyzmq without copies
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import zmq
from twinlink_measure import usage
from twinlink_measure.channels import channel
from twinlink_measure.row_buffer import SentRows
from twinlink_measure.send_modes import precise_sleep

import twinlink
from twinlink.transport_options import TransportName
from twinlink.transports import Endpoint, transport_name

FLOW = "sweep"  # the flow of the sweep's workers, which receive
READY_S = 30.0
MB = 1024 * 1024
OFFERED_HZ = 40.0  # 1 MB messages; more than an unacknowledged flow may keep within two seconds
SETTLE_S = 20.0
ROWS = 1000  # of a batch


def main(arguments: Sequence[str]) -> None:
    """Run in a mode until stdin ends."""
    role, name, endpoint = arguments
    if role == "fan-out":
        fan_out(name, endpoint)
        return
    transport = transport_name(name)
    if role == "stalled":
        stalled(transport, endpoint)
    elif role == "two-flows":
        two_flows(transport, endpoint)
    elif role == "batches":
        batches(transport, endpoint)
    elif role == "takes-batches":
        takes_batches(transport, endpoint)
    elif role == "by-reference":
        by_reference(endpoint)
    else:
        takes_by_reference(endpoint)


def stalled(transport: TransportName, endpoint: str) -> None:
    """Commands: ``send SECONDS``, then ``settle``."""
    payload = bytes(MB)
    with twinlink.open(transport, connect=endpoint, node="sender") as link:
        sender = link.sender(FLOW)
        link.wait_ready(READY_S)
        for _ in range(20):
            sender.send(payload)
            sender.flush(READY_S)
        before = sender.stats()
        usage.begin_peak()
        began_with = usage.peak_rss_octets()
        say(ready=True)
        seconds = float(sys.stdin.readline().split()[1])
        offered = sent = refused = 0
        begin = time.monotonic()
        while time.monotonic() - begin < seconds:
            offered += 1
            try:
                sender.send(payload)
                sent += 1
            except (twinlink.SendTimeout, twinlink.TransportError):
                refused += 1
            time.sleep(max(0.0, begin + offered / OFFERED_HZ - time.monotonic()))
        say(offered=offered, sent=sent, refused=refused, before=began_with, peak=usage.peak_rss_octets())
        sys.stdin.readline()
        deadline = time.monotonic() + SETTLE_S
        while sender.stats()["outstanding"] and time.monotonic() < deadline:
            time.sleep(0.05)
        after = sender.stats()
        say(**{name: after[name] - before[name] for name in ("acknowledged", "lost")})
        sys.stdin.readline()


def two_flows(transport: TransportName, endpoint: str) -> None:
    """Commands: ``send FLOW COUNT OCTETS``; a flow's name is its reliability."""
    rtt_ns: list[int] = []
    with twinlink.open(transport, connect=endpoint, node="sender") as link:
        senders = {
            "repair": link.sender("repair", reliability="repair", on_ack=lambda ack: rtt_ns.append(ack.rtt_ns)),
            "detect": link.sender("detect", reliability="detect", on_ack=lambda ack: rtt_ns.append(ack.rtt_ns)),
        }
        link.wait_ready(READY_S)
        for line in sys.stdin:
            _, flow, count, octets = line.split()
            sender, payload = senders[flow], bytes(int(octets))
            rtt_ns.clear()
            for _ in range(int(count)):
                sender.send(payload)
                sender.flush(READY_S)
            say(rtt_ns=rtt_ns)


def fan_out(subject: str, endpoint: str) -> None:
    """Commands: ``send COUNT OCTETS HZ``; answers how long each call took, and the number of the first message."""
    sender = channel(subject, Endpoint.parse(endpoint), True, "sender")
    sender.open()
    say(ready=True)
    precise_sleep()
    for line in sys.stdin:
        count, octets, rate_hz = map(int, line.split()[1:])
        sender.load(octets)
        sender.rows = SentRows(sender.next, count)
        sender.collect()
        calls, began_ns = [], time.monotonic_ns()
        for number in range(count):
            time.sleep(max(0.0, (began_ns + number * 1_000_000_000 // rate_hz - time.monotonic_ns()) / 1e9))
            before_ns = time.monotonic_ns()
            sender.send()
            calls.append(time.monotonic_ns() - before_ns)
        sender.settle(READY_S, threading.Event())
        say(first=sender.rows.first, calls_ns=calls)


def batches(transport: TransportName, endpoint: str) -> None:
    """Commands: ``send COUNT OCTETS``; answers when all is acknowledged."""
    with twinlink.open(transport, connect=endpoint, node="sender", send_timeout=READY_S) as link:
        sender = link.sender(FLOW)
        link.wait_ready(READY_S)
        say(ready=True)
        for line in sys.stdin:
            count, octets = map(int, line.split()[1:])
            records = np.zeros((min(count, ROWS), octets), np.uint8)
            for first in range(0, count, ROWS):
                sender.send_many(records[: count - first])
            sender.flush(READY_S)
            say(acknowledged=sender.stats()["acknowledged"])


def takes_batches(transport: TransportName, endpoint: str) -> None:
    """Commands: ``receive COUNT``; answers how long they took to arrive, from the first to the last, in order."""
    with twinlink.open(transport, listen=endpoint, node="receiver") as link:
        receiver, expected = link.receiver(FLOW), 0
        say(ready=True)
        for line in sys.stdin:
            end, first_ns = expected + int(line.split()[1]), 0
            while expected < end:
                batch = receiver.receive_many(timeout=READY_S)
                if not batch or not np.array_equal(batch.sequence, np.arange(expected, expected + len(batch))):
                    raise SystemExit(f"record {expected} did not arrive, or not in its turn")
                first_ns = first_ns or int(batch.received_ns[0])
                expected += len(batch)
            say(took_ns=int(batch.received_ns[-1]) - first_ns)


def by_reference(endpoint: str) -> None:
    """Commands: ``send COUNT OCTETS``; says when its subscriber is there."""
    with zmq.Context() as context, context.socket(zmq.XPUB) as socket:
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.bind(endpoint)
        socket.recv()
        say(ready=True)
        for line in sys.stdin:
            count, octets = map(int, line.split()[1:])
            payload = bytes(octets)
            for _ in range(count):
                socket.send(payload, copy=False)


def takes_by_reference(endpoint: str) -> None:
    """Commands: ``receive COUNT``; answers how long they took to arrive, from the first to the last."""
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.setsockopt(zmq.RCVTIMEO, int(READY_S * 1000))
        socket.setsockopt(zmq.SUBSCRIBE, b"")
        socket.connect(endpoint)
        for line in sys.stdin:
            socket.recv(copy=False)
            first_ns = time.monotonic_ns()
            for _ in range(int(line.split()[1]) - 1):
                socket.recv(copy=False)
            say(took_ns=time.monotonic_ns() - first_ns)


def say(**content: Any) -> None:
    """Print an answer."""
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


class SenderProcess:
    """A handle of such a process; raises OSError if it ends early."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.sender", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def tell(self, line: str) -> None:
        """Send a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The next answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise OSError(f"a sender process ended with code {self._process.wait()}; its message stands above")
        return dict(json.loads(line))

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


if __name__ == "__main__":
    main(sys.argv[1:])
