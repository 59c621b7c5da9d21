"""Synthetic ledgers for the checker's own tests: a correct run, faults included."""

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .ledger import Deliveries, Report, Sends, Session

MS = 1_000_000
FLOW = "spectrum"
OCTETS = 1000


@dataclass
class Book:
    """A session's ledger while it is still made of lists, which a test may spoil."""

    node: str
    role: str
    epoch: int
    opened_ns: int
    reliability: str
    retention: int = 0
    ended: bool = True
    sends: list[list[int]] = field(default_factory=list)  # sequence, digest, begun_ns, sent_ns
    pending: list[tuple[int, int]] = field(default_factory=list)
    got: dict[int, list[list[int]]] = field(default_factory=dict)  # epoch -> [sequence, digest, at_ns]
    acked: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    unsettled: list[tuple[int, int]] = field(default_factory=list)
    events: list[Report] = field(default_factory=list)

    def report(self, at_ns: int, name: str, **fields: Any) -> None:
        self.events.append(Report(at_ns, name, {"flow": FLOW, **fields}))

    def named(self, name: str) -> list[Report]:
        return [report for report in self.events if report.name == name]

    def session(self) -> Session:
        made = Session(
            self.node, self.role, self.epoch, self.opened_ns, self.reliability, self.retention, ended=self.ended
        )
        if self.role == "connect":
            table = np.array(self.sends, object).reshape(-1, 4)
            numbers, digests = table[:, 0].astype(np.int64), table[:, 1].astype(np.uint64)
            begun_ns, sent_ns = table[:, 2].astype(np.int64), table[:, 3].astype(np.int64)
            octets = np.full(len(numbers), OCTETS)
            made.sends[FLOW] = Sends(numbers, digests, begun_ns, sent_ns, self.pending, octets)
        else:
            made.receives.add(FLOW)
        for epoch, rows in self.got.items():
            table = np.array(rows, object).reshape(-1, 3)
            made.deliveries[FLOW, epoch] = Deliveries(
                table[:, 0].astype(np.int64), table[:, 1].astype(np.uint64), table[:, 2].astype(np.int64)
            )
        made.acked = {(FLOW, epoch): ranges for epoch, ranges in self.acked.items()}
        made.unsettled = {FLOW: self.unsettled} if self.unsettled else {}
        made.events = self.events
        return made


class Story:
    """Sessions of "rw", which sends on one flow, and of "dt", which receives, told message by message.

    Attributes:
        senders, receivers: the books, the latest last.
    """

    def __init__(self, seed: int, reliability: str = "repair") -> None:
        self.random = random.Random(seed)
        self.reliability = reliability
        self.now_ns = 1_000 * MS
        self.senders = [self._book("rw", "connect")]
        self.receivers = [self._book("dt", "listen")]
        self.meet()

    def _book(self, node: str, role: str) -> Book:
        self.now_ns += 10 * MS
        return Book(node, role, self.random.getrandbits(64), self.now_ns, self.reliability)

    def meet(self) -> None:
        """Each hears the other; what is sent from now on is owed."""
        for one, other in ((self.sender, self.receiver), (self.receiver, self.sender)):
            one.report(self.now_ns, "PeerUp", node=other.node, epoch=other.epoch)
        self.now_ns += MS

    @property
    def sender(self) -> Book:
        return self.senders[-1]

    @property
    def receiver(self) -> Book:
        return self.receivers[-1]

    def send(self) -> int:
        sends = self.sender.sends
        sends.append([len(sends), self.random.getrandbits(64), self.now_ns, self.now_ns + 1000])
        self.now_ns += MS
        return len(sends) - 1

    def deliver(self, sequence: int, acknowledge: bool = True) -> None:
        sender, receiver = self.sender, self.receiver
        digest = sender.sends[sequence][1]
        receiver.got.setdefault(sender.epoch, []).append([sequence, digest, self.now_ns])
        if acknowledge:
            sender.acked.setdefault(receiver.epoch, []).append((sequence, sequence + 1))
        self.now_ns += MS // 2

    def pass_on(self, count: int) -> None:
        """Messages that arrive."""
        for _ in range(count):
            self.deliver(self.send())

    def lose(self, count: int) -> tuple[int, int]:
        """Messages that do not, as both sides say."""
        sent = [self.send() for _ in range(count)]
        first, end = sent[0], sent[-1] + 1
        self.receiver.report(self.now_ns, "Gap", epoch=self.sender.epoch, first=first, end=end)
        if self.random.random() < 0.7 or self.reliability == "repair":
            self.sender.report(self.now_ns, "Lost", first=first, end=end, reason="out of the ring")
        else:
            self.sender.unsettled.append((first, end))
        return first, end

    def come_late(self, count: int) -> None:
        """With "detect": a gap that fills after a later message."""
        first, end = self.lose(count)
        self.pass_on(1)
        for sequence in self.random.sample(range(first, end), count):
            self.receiver.report(self.now_ns, "Reordered", epoch=self.sender.epoch, sequence=sequence)
            self.deliver(sequence)

    def kill_receiver(self, doubtful: int, away: int) -> None:
        """It dies having acknowledged more than its application wrote down; what is sent meanwhile is lost."""
        sender, receiver = self.sender, self.receiver
        for _ in range(doubtful):
            sequence = self.send()
            sender.acked.setdefault(receiver.epoch, []).append((sequence, sequence + 1))
        receiver.ended = False
        if away:
            sent = [self.send() for _ in range(away)]
            sender.report(self.now_ns, "Lost", first=sent[0], end=sent[-1] + 1, reason="no peer was up")
        self.receivers.append(self._book("dt", "listen"))
        self.meet()

    def kill_sender(self, unheard: int, pending: str) -> None:
        """It dies with messages that never left; the last one was being sent, and arrived or not."""
        for _ in range(unheard):
            self.send()
        sender = self.sender
        sender.ended = False
        if pending != "none":
            sender.pending.append((self.random.getrandbits(64), self.now_ns))
            self.now_ns += MS
        if pending == "arrived" and not unheard:
            digest = sender.pending[0][0]
            self.receiver.got.setdefault(sender.epoch, []).append([len(sender.sends), digest, self.now_ns])
        self.senders.append(self._book("rw", "connect"))
        self.meet()

    def sessions(self) -> list[Session]:
        return [book.session() for book in self.senders + self.receivers]


def tell(seed: int, reliability: str = "repair") -> Story:
    """A story of any kind; it begins and ends with messages that arrive, so that every spoiling finds its place."""
    story = Story(seed, reliability)
    rng = story.random
    story.pass_on(rng.randint(5, 30))
    for _ in range(rng.randint(0, 8)):
        what = rng.choice(("pass", "lose", "late", "receiver", "sender"))
        if what == "lose":
            story.lose(rng.randint(1, 20))
        elif what == "late" and reliability == "detect":
            story.come_late(rng.randint(1, 5))
        elif what == "receiver":
            story.kill_receiver(rng.randint(0, 3), rng.randint(0, 20))
        elif what == "sender":
            story.kill_sender(rng.randint(0, 10), rng.choice(("none", "lost", "arrived")))
        story.pass_on(rng.randint(1, 30))
    return story


def plain(reliability: str = "repair") -> Story:
    """20 arrive, 5 do not, 20 arrive; no process dies."""
    story = Story(1, reliability)
    story.random = random.Random(1)
    story.pass_on(20)
    first, end = story.lose(5)
    story.sender.unsettled.clear()
    story.sender.events = story.sender.named("PeerUp")
    story.sender.report(story.now_ns, "Lost", first=first, end=end, reason="out of the ring")
    story.pass_on(20)
    return story


def replaced(report: Report, **fields: Any) -> Report:
    """The same report, saying something else."""
    return Report(report.at_ns, report.name, {**report.fields, **fields})
