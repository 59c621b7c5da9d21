"""The twins: which are up, which are in sync, and which one holds the block.  No I/O; time is passed in.

1. A decision counts only from a peer that is up, that is after the exchange of hellos.
2. A twin holds the block from its first accepted list of PRBs on, until it is down or out of sync.  Meanwhile the
   decisions of other twins are rejected, also while no PRB is blocked.
3. Of the decisions of one session, the one with the highest sequence number, or version of a desired value, is the
   newest.  ``issued_ns`` does not order them, because the twin's clock may be set back.
4. Only a twin that is in sync may block PRBs or renew its block.  It may end its block at any time.
"""

from dataclasses import dataclass

from twinlink.sync import State

from .twin_sync import SentObservations, SyncLimits, SyncReport, TwinSync

CHECK_INTERVAL_NS = 100_000_000


@dataclass(slots=True)
class Twin:
    """A session of a twin that is up.

    Attributes:
        out_of_sync: as `Twins.changes` reported it last.
        newest_decision: its sequence number; -1 before the first one.
        on_flow: whether it has decided on flow ``control``.
    """

    node: str
    epoch: int
    sync: TwinSync
    out_of_sync: bool = False
    newest_decision: int = -1
    on_flow: bool = False


class Twins:
    """Takes what the link reports of its peers; `acknowledged`, `reports` and `not_ready` may be called by any thread.

    Attributes:
        sent: the observations.
        holder: the twin that holds the block, or None.
    """

    def __init__(self, limits: SyncLimits) -> None:
        self.sent = SentObservations(limits)
        self.holder: Twin | None = None
        self._limits = limits
        self._twins: dict[int, Twin] = {}  # by epoch
        self._checked_ns = 0

    def __bool__(self) -> bool:
        """Whether any twin is up."""
        return bool(self._twins)

    def up(self, node: str, epoch: int, now_ns: int) -> None:
        """A twin came up."""
        self._twins[epoch] = Twin(node, epoch, TwinSync(self._limits, self.sent, now_ns))

    def down(self, epoch: int) -> bool:
        """A twin went down; returns whether it held the block."""
        return (twin := self._twins.pop(epoch, None)) is not None and self.release(twin)

    def release(self, twin: Twin) -> bool:
        """This twin may not hold the block any more; returns whether it held it."""
        held = twin is self.holder
        if held:
            self.holder = None
        return held

    def get(self, epoch: int) -> Twin | None:
        """The twin with this session, if it is up."""
        return self._twins.get(epoch)

    def decides_by(self, epoch: int, on_flow: bool) -> bool:
        """Whether a decision on the flow, or as a desired value, is to be checked.

        A session that has decided on the flow is obeyed there alone: the two arrive in an order of their own.
        """
        if (twin := self._twins.get(epoch)) is None or on_flow == twin.on_flow:
            return True
        if on_flow:
            twin.on_flow, twin.newest_decision = True, -1  # it was the version of a desired value
        return on_flow

    def acknowledged(self, epoch: int, sequence: int, sent_ns: int) -> None:
        """A peer has acknowledged an observation that was sent at this monotonic time."""
        if (twin := self._twins.get(epoch)) is not None:
            twin.sync.acknowledged(sequence, sent_ns)

    def accept(self, twin: Twin, sequence: int, clears: bool, now_ns: int) -> str | None:
        """Accept a decision that passed the guard; returns None, or why it is rejected: a `Rule`, a colon and a text.

        ``clears``: the list of the decision is empty.
        """
        if sequence <= twin.newest_decision:
            return f"order: decision {sequence} of {twin.node} is not newer than its decision {twin.newest_decision}"
        twin.newest_decision = sequence
        holder = self.holder
        if holder is not None and holder is not twin:
            name = holder.node if holder.node != twin.node else f"another session of {holder.node}"
            return f"holder: {name} holds the block until it is down or out of sync"
        if clears:
            return None
        report = twin.sync.report(now_ns)
        if report.state is not State.IN_SYNC:
            return f"sync: {twin.node} is {report.state.value}: {report.reason}"
        self.holder = twin
        return None

    def reports(self, now_ns: int) -> list[SyncReport]:
        """The state of each twin."""
        return [twin.sync.report(now_ns) for twin in list(self._twins.values())]

    def changes(self, now_ns: int) -> list[tuple[Twin, SyncReport]]:
        """The twins that became out of sync since the last call, or are in sync again.

        Nothing within `CHECK_INTERVAL_NS` of the call before, so it may be called often.
        """
        if now_ns - self._checked_ns < CHECK_INTERVAL_NS:
            return []
        self._checked_ns = now_ns
        changes = []
        for twin in self._twins.values():
            report = twin.sync.report(now_ns)
            # Between two calls the holder may have been in sync again, and have taken the block.
            lost = report.state is State.OUT_OF_SYNC and (not twin.out_of_sync or twin is self.holder)
            if lost or (report.state is State.IN_SYNC and twin.out_of_sync):
                twin.out_of_sync = lost
                changes.append((twin, report))
        return changes

    def not_ready(self, now_ns: int) -> str | None:
        """Why no twin follows the observations; None if one does."""
        states = {report.state for report in self.reports(now_ns)}
        if not states:
            return "no twin is up"
        if State.IN_SYNC in states:
            return None
        if State.BOUND in states:
            return "the twin has not acknowledged an observation yet"
        return "the twin is out of sync: it does not acknowledge new observations"
