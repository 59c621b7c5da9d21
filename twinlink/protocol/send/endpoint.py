"""What a session needs of the sending end of a flow, which has the locks that its threads need."""

from collections.abc import Callable
from typing import Literal, Protocol

from ...message import Ack
from ..frames import MAX_PAYLOAD, Records
from .loss import Loss, LossLedger

Priority = Literal["high", "normal"]
Reliability = Literal["repair", "detect"]


class SendEndpoint(Protocol):
    """The sending end of one flow.

    Attributes:
        flow: its name.
        on_ack: the application's function for acks, or None.
        on_ack_scheduled, on_ack_called: how many acks `on_ack` is to be called with at most, and has been.
        losses, pace_changes: what is to be reported.
        max_payload: octets of the longest payload that some peer takes.
    """

    flow: str
    on_ack: Callable[[Ack], None] | None
    on_ack_scheduled: int
    on_ack_called: int
    losses: LossLedger
    pace_changes: dict[int, int]
    max_payload: int

    @property
    def priority(self) -> Priority:
        """Whether bulk data on other flows must not delay this one."""

    @property
    def reliability(self) -> Reliability:
        """Whether messages are retransmitted."""

    @property
    def next_to_send(self) -> int:
        """The first number that has not been transmitted."""

    def first_owed_by(self, epoch: int) -> int | None:
        """The first number that was owed to a peer when it came up; None if it has not."""

    def ack_received(
        self, epoch: int, consumed: int, records: Records, t2_ns: int, t3_ns: int, t4_ns: int, t4_mono_ns: int
    ) -> list[Ack]:
        """Take in an ack; returns what to give to ``on_ack``."""

    def nak_received(
        self, epoch: int, known: int, missing: list[tuple[int, int]], t3_ns: int, t4_ns: int, t4_mono_ns: int
    ) -> list[Ack]:
        """Take in what a peer misses; returns what to give to ``on_ack``."""

    def refused_received(self, epoch: int, end: int, t4_mono_ns: int) -> None:
        """Take in that a peer has no room for some of what arrived there, below ``end``."""

    def fragment_progress_received(self, epoch: int, sent_ns: int, octets: int) -> None:
        """Take in how many octets a peer has of a frame that leaves in fragments."""

    def on_ack_deferred(self) -> None:
        """`on_ack` is going to be called later."""

    def on_ack_done(self, turn: int) -> None:
        """`on_ack` has been called with the first ``turn`` acks."""

    def on_peer_up(self, epoch: int, repairs: bool, max_payload: int = MAX_PAYLOAD) -> None:
        """A peer came up; ``repairs``: it requests what it misses; ``max_payload``: what it takes."""

    def on_peer_down(self, epoch: int, reason: str, may_return: bool, successor: int | None) -> None:
        """A peer went down; ``may_return``: messages are kept for it."""

    def on_peer_ended(self, epoch: int, reason: str, successor: int | None) -> None:
        """A suspended peer will not return."""

    def give_up_longer(self, size: int, reason: str) -> None:
        """No payload of more than ``size`` octets gets through: what is longer is lost."""

    def on_read(self, mono_ns: int) -> None:
        """A peer has said how far it has read: a flow that waits for it may perhaps go on without it."""

    def probe(self) -> None:
        """Have the peers say what they miss, if any owes an ack."""

    def take_losses(self, most: int) -> list[Loss]:
        """At most so many ranges of what was lost since the last call, and why."""

    def take_pace_changes(self) -> dict[int, int]:
        """By epoch, how many messages a peer is behind that has become slow since the last call; 0: it has caught
        up."""
