"""Kinds of findings, and the verdict on a run."""

from dataclasses import dataclass, field
from enum import StrEnum


class Fault(StrEnum):
    """What can be wrong."""

    NUMBERING = "numbering"  # a sender's numbers do not run 0, 1, 2, ...
    PHANTOM = "phantom"  # delivered, never sent
    CORRUPT = "corrupt"  # delivered with another payload
    TIME = "before it was sent"
    DUPLICATE = "duplicate"
    REORDERED = "reordered"
    UNDETECTED = "undetected loss"  # a later message was delivered, and no gap was reported
    TAIL = "undetected tail loss"  # the same, without a later message
    TOO_SOON = "given up too soon"  # the flow's retention had room, and the receiver lived
    UNACCOUNTED = "unaccounted"  # neither delivered nor reported by any node
    FALSE_GAP = "false gap"  # reported missing, and delivered
    PHANTOM_GAP = "phantom gap"  # reported missing, never sent
    GAP_TWICE = "gap twice"
    LATE_GAP = "late gap"  # reported long after the delivery that showed it
    FALSE_LOST = "false lost"  # the sender says lost, the receiver has it, or has acknowledged it
    PHANTOM_LOST = "phantom lost"  # the sender says lost what it never sent
    LOST_TWICE = "lost twice"
    SENDER_UNAWARE = "sender unaware"  # missing, and the sender does not say so
    ACKED_UNDELIVERED = "acknowledged, not delivered"
    FALSE_REORDERED = "false reordered"  # a Reordered event without its delivery
    OLD_SESSION = "old session"  # a message of a session after its successor was heard
    AGAIN = "again after restart"  # delivered to a receiver's successor although it was acknowledged before


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong; sequences ``first`` to ``end - 1``."""

    fault: Fault
    flow: str
    sender: str
    receiver: str
    first: int
    end: int
    text: str = ""

    def __str__(self) -> str:
        count = self.end - self.first
        which = f"{self.first}" if count == 1 else f"{self.first} to {self.end - 1} ({count})"
        return f"{self.fault}: {self.flow} {self.sender} -> {self.receiver}, {which}{self.text and ': ' + self.text}"


@dataclass
class Verdict:
    """Findings, and how many messages were accounted for in which way."""

    findings: list[Finding] = field(default_factory=list)
    sent: int = 0
    delivered: int = 0
    reported: int = 0  # in gaps at the receiver
    never_owed: int = 0  # sent while the receiver was not there, and lost according to the sender
    unpromised: int = 0  # the same, and delivered all the same
    late: int = 0  # "detect" only
    again: int = 0
    died_with_sender: int = 0
    died_with_receiver: int = 0

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings
