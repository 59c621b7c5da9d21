"""One node of the lab: sends, receives, writes its ledger, and executes commands from standard input.

    python -m tests.faults.node --ledger FILE --transport zeromq --connect tcp/10.77.0.1:7447 --node rw \\
        --send spectrum:200:100,1000: --receive control

It answers on standard output, one JSON object a line: ``{"said": "ready"}``.  What it can be told:

| line | what it does |
|---|---|
| ``finish SECONDS`` | stops sending, flushes every flow, writes down what flush names; answers ``finished`` |
| ``drain SECONDS`` | waits until the application has had what arrived |
| ``close`` | closes the link; answers ``closed`` with the seconds it took, and exits with 0 |
| ``raise N`` | the next N messages find a handler that raises after writing them down |
| ``block SECONDS`` | the next message finds a handler that sleeps |
| ``slow SECONDS`` | from now on every message finds a handler that sleeps; 0: none does |
| ``answer N`` | the next N messages find a handler that sends on flow ``answers`` |
| ``record FILE`` | every message is also written to this file, by the handler; what that raises is raised |
| ``fork`` | forks; the child tries to send and says what came of it |
| ``faster HZ`` | sends on all flows at this rate from now on |
"""

import argparse
import heapq
import json
import os
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from struct import Struct
from typing import Any, cast

import twinlink
from tests.faults.ledger import Writer, digest
from twinlink.protocol.rangeset import RangeSet
from twinlink.protocol.session import Priority

POOL_OCTETS = 2 * 1024 * 1024
RETENTION_OCTETS = 64 * 1024 * 1024
SLIP_S = 0.2  # a sender that is this late (stopped, or held in send) does not catch up
ACKS_WRITTEN_S = 0.02
IDLE_LOOKS = 15
LATE_S = 1.0
SLOWEST = 8  # sends of each flow that are told of: the lab leaves those out during which it had stopped the process
STAMP = Struct("!QQQ")  # makes every payload another one: epoch, flow, count


class Sending(threading.Thread):
    """Sends on one flow at a rate, until told to stop."""

    def __init__(
        self, node: "Node", flow: str, rate_hz: float, sizes: list[int], priority: Priority | None, seed: int
    ) -> None:
        super().__init__(name=f"send-{flow}", daemon=True)
        self.node = node
        self.flow = flow
        self.rate_hz = rate_hz
        self.sizes = sizes
        self.random = random.Random(f"{seed}-{flow}")
        self.stopping = threading.Event()
        self.slowest = [(0.0, 0)] * SLOWEST  # a heap: seconds, monotonic ns when it returned
        self.refused = 0
        node.ledger.flow(flow, "sends")
        self.sender = node.sender(flow, priority)

    def run(self) -> None:
        due = time.monotonic()
        count = 0
        while not self.stopping.is_set():
            due = max(due + 1 / self.rate_hz, time.monotonic() - SLIP_S)
            if (wait_s := due - time.monotonic()) > 0:
                self.stopping.wait(wait_s)
            count += 1
            try:
                took_s = self.node.send(self.sender, self.payload(count))
            except twinlink.SendTimeout as error:
                self.refused += 1
                took_s = float(getattr(error, "took_s", 0.0))
            heapq.heappushpop(self.slowest, (took_s, time.monotonic_ns()))

    def payload(self, count: int) -> bytes:
        """Different every time, of one of the sizes."""
        size = max(self.random.choice(self.sizes), STAMP.size)
        pool = self.node.pool * (1 + size // POOL_OCTETS)
        begin = self.random.randrange(len(pool) - size)
        stamp = STAMP.pack(self.node.link.epoch, hash(self.flow) & 0xFFFFFFFF, count)
        return stamp + pool[begin : begin + size - STAMP.size]


class Acks:
    """Acknowledged numbers of one flow, written to the ledger as ranges many times a second."""

    def __init__(self, node: "Node", flow: str) -> None:
        self.node = node
        self.flow = flow
        self.lock = threading.Lock()
        self.taken: deque[twinlink.Ack] = deque()
        self.take = self.taken.append  # and no more: the link's thread has acks of a whole backlog to hand over

    def write(self) -> None:
        with self.lock:
            acks = [self.taken.popleft() for _ in range(len(self.taken))]
        ranges: dict[int, RangeSet] = {}
        epoch, first, end = 0, 0, 0
        for ack in acks:
            if ack.sequence != end or ack.epoch != epoch:
                ranges.setdefault(epoch, RangeSet()).add(first, end)
                epoch, first = ack.epoch, ack.sequence
            end = ack.sequence + 1
        ranges.setdefault(epoch, RangeSet()).add(first, end)
        for epoch, acked in ranges.items():
            for first, end in acked:
                self.node.ledger.acked(self.flow, epoch, first, end)


class Node:
    """The link, its flows and its ledger."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.ledger = Writer(given.ledger, given.buffered)
        self.pool = random.Random(given.seed).randbytes(POOL_OCTETS)
        self.acks: list[Acks] = []
        self.to_raise = self.to_answer = 0
        self.to_block_s = self.slow_s = 0.0
        self.record: int | None = None
        self.mood = threading.Lock()
        self.answering = threading.Lock()  # a ledger wants the messages of a flow begun and sent one by one
        self.handling: set[int] = set()  # threads in `got`
        role = "listen" if given.listen else "connect"
        options = {"retention": RETENTION_OCTETS, **json.loads(given.options)}
        opening_ns = time.monotonic_ns()
        self.link = twinlink.open(given.transport, node=given.node, **{role: given.listen or given.connect}, **options)
        self.ledger.open(
            self.link.epoch, node=given.node, role=role, transport=given.transport, reliability=given.reliability,
            retention=options["retention"], opening_ns=opening_ns, wall_ns=time.time_ns(), pid=os.getpid(),
            iterates=bool(given.iterate),
        )  # fmt: skip
        self.link.events(handler=self.ledger.event)
        self.answers = None
        if given.answers:
            self.ledger.flow("answers", "sends")
            self.answers = self.sender("answers")
        if given.late:
            time.sleep(LATE_S)
        for flow in given.receive:
            self.ledger.flow(flow, "receives")
            if given.iterate:
                threading.Thread(target=self.iterate, args=(self.link.receiver(flow),), daemon=True).start()
            else:
                self.link.receiver(flow, handler=self.got)
        self.sendings = [Sending(self, *flow, given.seed) for flow in map(parse_flow, given.send)]
        threading.Thread(target=self.write_acks, daemon=True).start()

    def sender(self, flow: str, priority: Priority | None = None) -> twinlink.Sender:
        acks = Acks(self, flow)
        self.acks.append(acks)
        return self.link.sender(flow, on_ack=acks.take, reliability=self.given.reliability, priority=priority)

    def send(self, sender: twinlink.Sender, payload: bytes) -> float:
        """Send and write it down; the seconds that send took."""
        hashed = digest(payload)
        self.ledger.begin(sender.flow, len(payload), hashed)
        began = time.monotonic()
        try:
            sequence = sender.send(payload)
        except twinlink.TwinlinkError as error:
            error.took_s = time.monotonic() - began  # type: ignore[attr-defined]
            self.ledger.refused(sender.flow, len(payload), hashed, error)
            raise
        took_s = time.monotonic() - began
        self.ledger.sent(sender.flow, sequence, len(payload), hashed)
        return took_s

    def iterate(self, receiver: Iterable[twinlink.Message]) -> None:
        for message in receiver:
            try:
                self.got(message)
            except Exception as error:
                self.ledger.note(what="raised", error=repr(error))

    def got(self, message: twinlink.Message) -> None:
        """Write a delivery down; then do what the lab asked of handlers."""
        self.handling.add(threading.get_ident())
        try:
            hashed = digest(message.payload)
            self.ledger.got(
                message.flow, message.epoch, message.sequence, message.sent_ns, len(message.payload), hashed
            )
            if self.record is not None:
                os.write(self.record, message.payload)
            if self.to_block_s or self.slow_s or self.to_raise or self.to_answer:
                self.misbehave()
        finally:
            self.handling.discard(threading.get_ident())

    def misbehave(self) -> None:
        with self.mood:
            block_s, self.to_block_s = self.to_block_s, 0.0
            answers, self.to_answer = self.to_answer > 0, max(0, self.to_answer - 1)
            raises, self.to_raise = self.to_raise > 0, max(0, self.to_raise - 1)
        time.sleep(block_s + self.slow_s)
        if answers and self.answers is not None:
            with self.answering:
                self.send(self.answers, STAMP.pack(self.link.epoch, 0, time.monotonic_ns()))
        if raises:
            raise RuntimeError("asked to raise")

    def write_acks(self) -> None:
        while True:
            time.sleep(ACKS_WRITTEN_S)
            for acks in self.acks:
                acks.write()

    # What it is told

    def start(self) -> None:
        for sending in self.sendings:
            sending.start()

    def finish(self, patience_s: float) -> dict[str, Any]:
        """Stop sending and wait until everything is settled, or is named as missing."""
        for sending in self.sendings:
            sending.stopping.set()
        for sending in self.sendings:
            if sending.is_alive():
                sending.join(patience_s)
        deadline = time.monotonic() + patience_s
        unsettled = {}
        for sender in [sending.sender for sending in self.sendings] + ([self.answers] if self.answers else []):
            try:
                sender.flush(timeout=max(0.1, deadline - time.monotonic()))
            except twinlink.AckTimeout as error:
                self.ledger.unsettled(sender.flow, error.missing)
                unsettled[sender.flow] = str(error)
        for acks in self.acks:
            acks.write()
        return {"unsettled": unsettled, "alive": [one.flow for one in self.sendings if one.is_alive()]}

    def drain(self, patience_s: float) -> dict[str, Any]:
        """Return when the application has had everything that arrived, at so many looks in a row.

        By looks and not by time: on a busy machine a thread may be kept from looking for longer than that.
        """
        deadline = time.monotonic() + patience_s
        looks = 0
        while looks < IDLE_LOOKS and time.monotonic() < deadline:
            time.sleep(0.02)
            received = self.link.stats()["received"]
            waits = any(received[flow]["queued"] or received[flow]["held"] for flow in self.given.receive)
            looks = 0 if self.handling or waits else looks + 1
        return {"idle": looks == IDLE_LOOKS}

    def close(self) -> dict[str, Any]:
        stats = self.link.stats()
        began = time.monotonic()
        self.link.close()
        took_s = time.monotonic() - began
        for acks in self.acks:
            acks.write()
        said = {"close_s": took_s, "slowest_sends": [one for sending in self.sendings for one in sending.slowest]}
        self.ledger.closed(**said, refused={one.flow: one.refused for one in self.sendings}, stats=stats)
        return said

    def fork(self) -> dict[str, Any]:
        """Use the link in a forked child: the error that it should get."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                self.link.sender("forked").send(b"")
                os.write(writing, b"sent")
            except BaseException as error:
                os.write(writing, type(error).__name__.encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as answer:
            said = answer.read()
        os.waitpid(child, 0)
        return {"child": said}

    def obey(self, line: str) -> dict[str, Any]:
        word, *arguments = line.split()
        self.ledger.note(what=word, arguments=arguments)
        if word == "start":
            self.start()
        elif word == "finish":
            return {"said": "finished", **self.finish(float(arguments[0]))}
        elif word == "drain":
            return {"said": word, **self.drain(float(arguments[0]))}
        elif word == "close":
            return {"said": "closed", **self.close()}
        elif word == "raise":
            self.to_raise = int(arguments[0])
        elif word == "block":
            self.to_block_s = float(arguments[0])
        elif word == "slow":
            self.slow_s = float(arguments[0])
        elif word == "answer":
            self.to_answer = int(arguments[0])
        elif word == "record":
            self.record = os.open(arguments[0], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        elif word == "fork":
            return {"said": word, **self.fork()}
        elif word == "faster":
            for sending in self.sendings:
                sending.rate_hz = float(arguments[0])
        else:
            return {"said": "unknown", "line": line}
        return {"said": word}


def parse_flow(text: str) -> tuple[str, float, list[int], Priority | None]:
    """``name:rate:size,size:priority``; without a priority the library chooses."""
    name, rate_hz, sizes, priority = text.split(":")
    return (
        name,
        float(rate_hz),
        [int(size) for size in sizes.split(",")],
        cast(Priority, priority) if priority else None,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--buffered", action="store_true", help="the ledger; for runs that kill no process")
    parser.add_argument("--transport", required=True)
    parser.add_argument("--listen")
    parser.add_argument("--connect")
    parser.add_argument("--node", required=True)
    parser.add_argument("--send", action="append", default=[], metavar="FLOW:HZ:OCTETS[,OCTETS]:[PRIORITY]")
    parser.add_argument("--receive", action="append", default=[], metavar="FLOW")
    parser.add_argument("--answers", action="store_true", help="has a flow `answers` that handlers send on")
    parser.add_argument("--iterate", action="store_true", help="receive in threads of its own, not in handlers")
    parser.add_argument("--late", action="store_true", help=f"subscribe after {LATE_S:g} s")
    parser.add_argument("--reliability", choices=["repair", "detect"], default="repair")
    parser.add_argument("--options", default="{}", help="of twinlink.open, as JSON")
    parser.add_argument("--seed", type=int, default=0)
    node = Node(parser.parse_args())
    _say({"said": "ready"})
    node.start()
    for line in sys.stdin:
        answer = node.obey(line)
        _say(answer)
        if answer["said"] == "closed":
            return 0
    node.link.close()  # the lab is gone
    return 1


def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    sys.exit(main())
