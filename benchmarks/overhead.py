"""What the link costs: twinlink against raw pyzmq and raw zenoh-python, same frames, paired in one run.

    .venv/bin/python benchmarks/overhead.py [--transports zeromq,zenoh] [--octets 100,1024,10240] [--rounds 9]

Each round starts fresh processes, a reflector and a sender for each side of the comparison, and lets them work in turn,
in blocks of 200 exchanges, so that a machine whose speed drifts is the same to both.  What is printed is the median
over pairs of blocks of the ratio twinlink / raw, and the quartiles.  The raw side sends ``[topic, header + payload]``
and gets an ack of the same size back; it neither tracks nor checks anything.

``rtt`` is what ``on_ack`` reports; ``flush`` is the time of ``send`` and ``flush`` together, both against the raw
send-to-receive time.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import twinlink
from twinlink.testing.base import free_endpoint
from twinlink.transports.base import Endpoint
from twinlink.wire import ACK_ONE, HEADER

WARM_UP = 500
BLOCK = 200  # exchanges


def _percentile(values: Sequence[int], share: float) -> float:
    return sorted(values)[round(share * (len(values) - 1))]


class RawZeromq:
    """A PUB and a SUB, as the ZeroMQ guide would."""

    def __init__(self, listening: bool, port: int, subscribe: bytes) -> None:
        import zmq

        context = zmq.Context()
        self.pub, self.sub = context.socket(zmq.PUB), context.socket(zmq.SUB)
        for one in (self.pub, self.sub):
            one.setsockopt(zmq.LINGER, 0)
            one.setsockopt(zmq.HEARTBEAT_IVL, 1000)
        self.sub.setsockopt(zmq.SUBSCRIBE, subscribe)
        if listening:
            self.pub.bind(f"tcp://127.0.0.1:{port}")
            self.sub.bind(f"tcp://127.0.0.1:{port + 1}")
        else:
            self.sub.connect(f"tcp://127.0.0.1:{port}")
            self.pub.connect(f"tcp://127.0.0.1:{port + 1}")

    def send(self, topic: bytes, frame: bytes) -> None:
        self.pub.send_multipart([topic, frame])

    def receive(self) -> bytes:
        return self.sub.recv_multipart()[1]


class RawZenoh:
    """A publisher and a subscriber with its default channel, same configuration as the twinlink transport."""

    def __init__(self, listening: bool, port: int, subscribe: bytes) -> None:
        import zenoh

        from twinlink.transports.zenoh import ZenohOptions, ZenohTransport

        self._zenoh = zenoh
        transport = ZenohTransport(Endpoint("127.0.0.1", port), listening, 1 << 24, ZenohOptions())
        self.session = zenoh.open(transport.config())
        self.subscriber = self.session.declare_subscriber(subscribe.decode() + "*")
        self.publishers: dict[bytes, zenoh.Publisher] = {}

    def send(self, topic: bytes, frame: bytes) -> None:
        if topic not in self.publishers:
            self.publishers[topic] = self.session.declare_publisher(
                topic.decode(),
                congestion_control=self._zenoh.CongestionControl.BLOCK,
                reliability=self._zenoh.Reliability.RELIABLE,
                express=True,
            )
        self.publishers[topic].put(frame)

    def receive(self) -> bytes:
        return bytes(self.subscriber.recv().payload.to_bytes())


RAW: dict[str, type[RawZeromq] | type[RawZenoh]] = {"zeromq": RawZeromq, "zenoh": RawZenoh}


Exchange = Callable[[], tuple[int, int]]  # one message and its ack: ns of the round trip, ns until flushed


def raw_reflector(transport: str, port: int, octets: int) -> None:
    """Answer every message with an ack-sized frame."""
    end = RAW[transport](True, port, b"traffic/")
    reply = bytes(ACK_ONE.size)
    while end.receive():
        end.send(b"ack/bench", reply)


def raw_sender(transport: str, port: int, octets: int) -> None:
    """Send a message and wait for the answer, as blocks ask for it."""
    end = RAW[transport](False, port, b"ack/")
    frame = bytes(HEADER.size + octets)
    time.sleep(0.7)  # the subscription travels

    def exchange() -> tuple[int, int]:
        start = time.perf_counter_ns()
        end.send(b"traffic/bench", frame)
        end.receive()
        elapsed = time.perf_counter_ns() - start
        return elapsed, elapsed

    blocks(exchange)


def link_reflector(transport: str, port: int, octets: int) -> None:
    """Take messages; the link acknowledges them."""
    with twinlink.open(transport, listen=f"tcp/127.0.0.1:{port}", node="reflector") as link:
        for _ in link.receiver("bench"):
            pass


def link_sender(transport: str, port: int, octets: int) -> None:
    """Send a message and flush, as blocks ask for it."""
    payload = bytes(octets)
    acks: list[twinlink.Ack] = []
    with twinlink.open(transport, connect=f"tcp/127.0.0.1:{port}", node="sender") as link:
        sender = link.sender("bench", on_ack=acks.append)
        link.wait_ready(10)

        def exchange() -> tuple[int, int]:
            start = time.perf_counter_ns()
            sender.send(payload)
            sender.flush(5)
            elapsed = time.perf_counter_ns() - start
            return acks.pop().rtt_ns, elapsed

        blocks(exchange)


def blocks(exchange: Exchange) -> None:
    """For each number on stdin, do so many exchanges and print their medians and p99."""
    print("ready", flush=True)
    for line in sys.stdin:
        pairs = [exchange() for _ in range(int(line))]
        round_trips, flushes = zip(*pairs, strict=True)
        figures = [_percentile(round_trips, 0.5), _percentile(round_trips, 0.99), _percentile(flushes, 0.5)]
        print(json.dumps(figures), flush=True)


class Side:
    """A reflector and a sender process, waiting for work."""

    def __init__(self, side: str, transport: str, octets: int) -> None:
        command = [sys.executable, str(Path(__file__)), "--role"]
        common = [side, transport, free_endpoint().rpartition(":")[2], str(octets)]
        self._reflector = subprocess.Popen([*command, "reflector", *common])
        time.sleep(0.5)
        self._sender = subprocess.Popen(
            [*command, "sender", *common], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._read()

    def _read(self) -> str:
        assert self._sender.stdout is not None
        line = self._sender.stdout.readline()
        if not line:
            raise SystemExit("a sender process ended early; its message stands above")
        return line

    def run(self, count: int) -> list[float]:
        assert self._sender.stdin is not None
        self._sender.stdin.write(f"{count}\n")
        self._sender.stdin.flush()
        figures: list[float] = json.loads(self._read())
        return figures

    def stop(self) -> None:
        for process in (self._sender, self._reflector):
            process.kill()
            process.wait()


def compare(transport: str, octets: int, rounds: int, blocks_per_round: int) -> None:
    """Measure one transport at one payload size, and print the ratios."""
    ratios: dict[str, list[float]] = {"rtt p50": [], "rtt p99": [], "flush p50": []}
    raw_p50 = []
    for _ in range(rounds):
        sides = {side: Side(side, transport, octets) for side in ("raw", "link")}
        try:
            for side in sides.values():
                side.run(WARM_UP)
            for number in range(blocks_per_round):
                order = ("raw", "link") if number % 2 else ("link", "raw")
                seen = {side: sides[side].run(BLOCK) for side in order}
                raw, link = seen["raw"], seen["link"]
                raw_p50.append(raw[0] / 1000)
                for name, one, other in (("rtt p50", 0, 0), ("rtt p99", 1, 1), ("flush p50", 2, 0)):
                    ratios[name].append(link[one] / raw[other])
        finally:
            for side in sides.values():
                side.stop()
    cells = []
    for name, values in ratios.items():
        low, middle, high = statistics.quantiles(values, n=4)
        cells.append(f"{name} {middle:.2f} ({low:.2f}-{high:.2f})")
    print(f"{transport:7} {octets:6} B  raw p50 {statistics.median(raw_p50):6.1f} us  link/raw: {'  '.join(cells)}")


def main() -> None:
    """Compare everything asked for; or be one of the processes that do the work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transports", default="zeromq,zenoh")
    parser.add_argument("--octets", default="100,1024,10240")
    parser.add_argument("--rounds", type=int, default=5, help="times that the processes are started anew")
    parser.add_argument("--blocks", type=int, default=20, help="pairs of blocks in each round")
    parser.add_argument("--role", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role:
        role, side, transport, port, octets = arguments.role
        run = {
            ("reflector", "raw"): raw_reflector, ("reflector", "link"): link_reflector,
            ("sender", "raw"): raw_sender, ("sender", "link"): link_sender,
        }[role, side]  # fmt: skip
        run(transport, int(port), int(octets))
        return
    for transport in arguments.transports.split(","):
        for octets in arguments.octets.split(","):
            compare(transport, int(octets), arguments.rounds, arguments.blocks)


if __name__ == "__main__":
    main()
