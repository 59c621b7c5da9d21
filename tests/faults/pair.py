"""One flow of one sender session, as the sessions of one node received it (the rules: tests/faults/checker.py)."""

from collections.abc import Iterable, Sequence

import numpy as np

from twinlink.protocol.send.loss import NOT_TAKEN
from twinlink.protocol.send.retransmit_buffer import ENTRY_OVERHEAD_OCTETS

from .ledger import Deliveries, Numbers, Report, Sends, Session
from .verdict import Fault, Finding, Verdict

# A gap is news: after this it was found too late.  Rejected messages are reported once a second.
REPORTED_WITHIN_NS = {"repair": 500_000_000, "detect": 2_000_000_000}
REJECTED_WITHIN_NS = 2_000_000_000

Ranges = Iterable[tuple[int, int]]

NOTHING = Deliveries(np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros(0, np.int64))


class Pair:
    """One flow of one sender session, and the sessions of one node that should have had it."""

    def __init__(
        self,
        verdict: Verdict,
        sender: Session,
        flow: str,
        sends: Sends,
        receivers: Sequence[Session],
        others: Sequence[Session] = (),
    ) -> None:
        """``others``: sessions of other nodes, which should have had it as well."""
        self.verdict = verdict
        self.sender = sender
        self.flow = flow
        self.sends = sends
        self.others = others
        self.receivers = receivers
        self.count = len(sends.sequence)
        self.exact = sender.reliability == "repair"
        # A process that was killed within send may have sent: the message gets the next number.
        self.sendable = self.count + (not sender.ended and bool(sends.pending))
        self.delivered = np.zeros(self.sendable, bool)  # by some session of the node
        self.survived = np.zeros(self.sendable, bool)  # by one that was not killed
        self.acked = np.zeros(self.sendable, bool)  # by some session of the node
        self.unpromised = np.zeros(self.sendable, bool)  # delivered by one that was not owed it
        self.unsettled = self._mask(sender.unsettled.get(flow, []))
        self.sent_before_down = self._sent_before_down()
        self.lost_by_name = np.zeros(self.sendable, bool)  # to this node, says the sender
        self.rejected = np.zeros(self.sendable, bool)  # by this node, says the sender
        self.lost = self._lost()
        self.for_others = self._for_others(others)

    def judge(self) -> None:
        delivered = self.delivered
        reported = np.zeros(self.sendable, bool)  # in a gap of some session, and not come late
        inside = np.zeros(self.sendable, bool)  # between the first and the last a session knew of: its business
        acked_early = np.zeros(self.sendable, bool)  # to a session that ended before the run did
        known_until, last_start, last = 0, self.sendable, self.receivers[-1]
        for receiver in self.receivers:
            deliveries = receiver.deliveries.get((self.flow, self.sender.epoch), NOTHING)
            mine = self._deliveries(receiver, deliveries)
            again = mine & delivered
            self.mark(Fault.AGAIN, again & acked_early, receiver)
            self.verdict.again += int(np.count_nonzero(again))
            delivered |= mine
            if receiver.ended:
                self.survived |= mine
            gaps = self._gaps(receiver, mine, deliveries, delivered & acked_early)
            reported |= gaps
            acked = self._mask(self.sender.acked.get((self.flow, receiver.epoch), []))
            self.acked |= acked
            if receiver is last and receiver.ended:
                self.mark(Fault.ACKED_UNDELIVERED, acked & ~mine & ~gaps, receiver)
            else:
                acked_early |= acked
            if self.exact:
                inside |= self._owed(receiver, mine, gaps)
                continue
            found = np.flatnonzero(mine | gaps)
            if len(found):
                inside[found[0] : found[-1] + 1] = True
                known_until = max(known_until, int(found[-1]) + 1)
                last_start = int(found[0])
            else:
                last_start = self.sendable
        self.verdict.delivered += int(np.count_nonzero(delivered))
        self.verdict.reported += int(np.count_nonzero(reported & ~delivered))
        if self.exact:
            self._rest(~delivered & ~reported & ~inside, acked_early)
        else:
            owed_ns = [
                up.at_ns for up in last.events if up.name == "PeerUp" and up.fields["epoch"] == self.sender.epoch
            ]
            if owed_ns:  # from then on everything is the last session's business, whether it ever heard of it or not
                last_start = min(last_start, int(np.searchsorted(self.sends.begun_ns, owed_ns[0])))
            self._missing(delivered, reported, inside, acked_early, known_until, last_start)
        if self.sender.ended:
            self.mark(Fault.SENDER_UNAWARE, ~delivered & ~self.lost & ~acked_early & ~self.for_others, last)

    def _owed(self, receiver: Session, mine: Numbers, gaps: Numbers) -> Numbers:
        """With "repair": what a session was owed, it has or names as a gap; returns what is judged by that."""
        owed_from = self._owed_from(receiver)
        self.unpromised[:owed_from] |= mine[:owed_from]
        # Of a killed session the end is not known: what it held, and what its application had not taken, died with it.
        found = np.flatnonzero(mine | gaps if receiver.ended else mine)
        judged = np.zeros(self.sendable, bool)
        if len(found):
            judged[min(int(found[0]), owed_from) : int(found[-1]) + 1] = True
            if not receiver.ended:  # nor which of its rejections it was about to report
                judged &= mine | gaps | ~self.rejected
            self.mark(Fault.UNDETECTED, judged & ~mine & ~gaps, receiver)
        if receiver.ended and self.sender.ended:
            tail = ~judged
            tail[:owed_from] = False
            self.mark(Fault.TAIL, tail & ~mine & ~gaps, receiver)
            judged |= tail
            self._too_soon(receiver, gaps, owed_from)
        return judged

    def _too_soon(self, receiver: Session, gaps: Numbers, owed_from: int) -> None:
        """What a living session is owed is given up only when newer messages fill the retention."""
        retention, sends = self.sender.retention, self.sends
        if not retention or not gaps.any():
            return
        kept = np.concatenate(([0], np.cumsum(sends.octets + ENTRY_OVERHEAD_OCTETS)))
        wrong = np.zeros(self.sendable, bool)
        for report in self._reports(receiver, "Gap"):
            until = int(np.searchsorted(sends.begun_ns, report.at_ns))
            numbers = np.arange(max(report.fields["first"], owed_from), min(report.fields["end"], self.count))
            wrong[numbers[kept[until] - kept[numbers] <= retention]] = True
        self.mark(Fault.TOO_SOON, wrong & gaps, receiver)

    def _rest(self, missing: Numbers, acked: Numbers) -> None:
        """With "repair": what no session has, and none was owed that lives."""
        missing[self.count :] = False  # it is unknown whether it was sent at all
        doubtful = missing & acked
        self.verdict.died_with_receiver += int(np.count_nonzero(doubtful))
        missing &= ~doubtful
        if not self.sender.ended:  # what it had not got across, or not said, died with it
            self.verdict.died_with_sender += int(np.count_nonzero(missing))
            return
        not_owed = self.lost | self.for_others
        self.verdict.never_owed += int(np.count_nonzero(missing & not_owed))
        self.mark(Fault.UNACCOUNTED, missing & ~not_owed, self.receivers[-1])

    # What one session of the receiver did

    def _deliveries(self, receiver: Session, deliveries: Deliveries) -> Numbers:
        """Check identity, times, duplication and order; returns which messages were delivered."""
        sequence = deliveries.sequence
        mine = np.zeros(self.sendable, bool)
        real = (sequence >= 0) & (sequence < self.sendable)
        for index in np.flatnonzero(~real):
            number = int(sequence[index])
            self._find(Fault.PHANTOM, number, number + 1, receiver, f"{self.count} were sent")
        sequence, digests, at_ns = sequence[real], deliveries.digest[real], deliveries.at_ns[real]
        mine[sequence] = True
        digest_sent, begun_ns = self.sends.digest, self.sends.begun_ns
        if self.sendable > self.count:
            digest_sent = np.append(digest_sent, np.uint64(self.sends.pending[0][0]))
            begun_ns = np.append(begun_ns, self.sends.pending[0][1])
        self._mark_all(Fault.CORRUPT, sequence[digests != digest_sent[sequence]], receiver)
        self._mark_all(Fault.TIME, sequence[at_ns < begun_ns[sequence]], receiver)
        steps = np.diff(sequence)
        if np.all(steps > 0):
            return mine
        _, first_at = np.unique(sequence, return_index=True)
        repeats = np.ones(len(sequence), bool)
        repeats[first_at] = False
        self._mark_all(Fault.DUPLICATE, sequence[repeats], receiver)
        ordered = np.maximum.accumulate(sequence)
        late = sequence[(sequence < ordered) & ~repeats]
        allowed = set() if self.exact else {number for number, _ in self._reordered(receiver)}
        self.verdict.late += sum(int(number) in allowed for number in late)
        self._mark_all(Fault.REORDERED, np.array([number for number in late if int(number) not in allowed]), receiver)
        return mine

    def _reordered(self, receiver: Session) -> list[tuple[int, int]]:
        """Sequence and time of the Reordered events."""
        return [(report.fields["sequence"], report.at_ns) for report in self._reports(receiver, "Reordered")]

    def _gaps(self, receiver: Session, mine: Numbers, deliveries: Deliveries, acked: Numbers) -> Numbers:
        """Check the gaps and rejections that a session reported; returns what they hold, without what came late."""
        gaps = np.zeros(self.sendable, bool)
        late = {number for number, _ in self._reordered(receiver)}
        for number in late:
            if not 0 <= number < self.sendable or not mine[number]:
                self._find(Fault.FALSE_REORDERED, number, number + 1, receiver)
        forgiven = self._mask((number, number + 1) for number in late) if not self.exact else np.zeros_like(gaps)
        ordered = np.maximum.accumulate(deliveries.sequence) if len(deliveries.sequence) else deliveries.sequence
        patience_ns = REPORTED_WITHIN_NS["repair" if self.exact else "detect"]
        for report in self._reports(receiver, "Gap", "Unclaimed"):
            first, end = report.fields["first"], report.fields["end"]
            if end > self.sendable or first < 0 or first >= end:
                self._find(Fault.PHANTOM_GAP, first, end, receiver, f"{self.count} were sent")
            here = self._mask([(first, end)])
            self.mark(Fault.GAP_TWICE, here & gaps, receiver)
            self.mark(Fault.FALSE_GAP, here & (mine | acked) & ~forgiven, receiver)
            gaps |= here
            after = int(np.searchsorted(ordered, end))  # the delivery that showed it
            within_ns = patience_ns if report.name == "Gap" else REJECTED_WITHIN_NS
            if after < len(ordered) and receiver.found_ns(report) > int(deliveries.at_ns[after]) + within_ns:
                delay_s = (receiver.found_ns(report) - int(deliveries.at_ns[after])) / 1e9
                self._find(Fault.LATE_GAP, first, end, receiver, f"{delay_s:.1f} s after the delivery that showed it")
        return gaps & ~(mine & forgiven)

    # What both sides make of it

    def _sent_before_down(self) -> Numbers:
        """What may be named as lost to this node, though it is there: its acks did not come before it went down.

        Others were told meanwhile that it will not come, and then this node does not tell what it has from what it gave
        up (`UnconfirmedEvictions`).
        """
        epochs = {receiver.epoch for receiver in self.receivers}
        downs = [one.at_ns for one in self.sender.events if one.name == "PeerDown" and one.fields["epoch"] in epochs]
        before = np.zeros(self.sendable, bool)
        if self.others and downs:
            before[: int(np.searchsorted(self.sends.begun_ns, max(downs)))] = True
        return before

    def _lost(self) -> Numbers:
        """What the sender says did not arrive at this node: by events, or with "detect" by `flush`."""
        by_event = np.zeros(self.sendable, bool)
        for report in self._reports(self.sender, "Lost"):
            if (peers := report.fields.get("peers")) and self.receivers[0].node not in peers:
                continue  # another node's
            first, end = report.fields["first"], report.fields["end"]
            if end > self.sendable or first < 0 or first >= end:
                self._find(Fault.PHANTOM_LOST, first, end, None, f"{self.count} were sent")
            here = self._mask([(first, end)])
            self.mark(Fault.LOST_TWICE, here & by_event, None)
            if peers:
                self.lost_by_name |= here
            if report.fields["reason"] == NOT_TAKEN:
                self.rejected |= here
            by_event |= here
        return by_event if self.exact else by_event | self.unsettled

    def _missing(
        self,
        delivered: Numbers,
        reported: Numbers,
        inside: Numbers,
        acked_early: Numbers,
        known_until: int,
        last_start: int,
    ) -> None:
        """With "detect": messages that were neither delivered nor reported by the receiver."""
        last = self.receivers[-1]
        missing = ~delivered & ~reported
        missing[self.count :] = False  # it is unknown whether it was sent at all
        self.mark(Fault.UNDETECTED, missing & inside & ~acked_early, last)
        self.verdict.died_with_receiver += int(np.count_nonzero(missing & inside & acked_early))
        missing &= ~inside
        if not self.sender.ended:  # what it had not got across died with it
            self.verdict.died_with_sender += int(np.count_nonzero(missing))
            missing[:] = False
        if last.ended:
            tail = missing.copy()
            tail[: max(last_start, known_until)] = False
            self.mark(Fault.TAIL, tail, last)
            missing &= ~tail
        self.verdict.died_with_receiver += int(np.count_nonzero(missing & acked_early))
        missing &= ~acked_early
        not_owed = self.lost | self.for_others
        self.verdict.never_owed += int(np.count_nonzero(missing & not_owed))
        self.mark(Fault.UNACCOUNTED, missing & ~not_owed, last)

    def _for_others(self, others: Sequence[Session]) -> Numbers:
        """What another node has, sent while this one had no session that was up: owed to the other alone."""
        mask = np.zeros(self.sendable, bool)
        for session in others:
            sequence = session.deliveries.get((self.flow, self.sender.epoch), NOTHING).sequence
            mask[sequence[(sequence >= 0) & (sequence < self.sendable)]] = True
        for receiver in self.receivers:
            mask[self._owed_from(receiver) : self._owed_until(receiver)] = False
        return mask

    # Small things

    def _owed_from(self, receiver: Session) -> int:
        """The first message that was sent when the sender held this session to be up."""
        ups = (
            report.at_ns
            for report in self.sender.events
            if report.name == "PeerUp" and report.fields["epoch"] == receiver.epoch
        )
        first_ns = next(ups, None)
        return self.sendable if first_ns is None else int(np.searchsorted(self.sends.begun_ns, first_ns))

    def _owed_until(self, receiver: Session) -> int:
        """The first message that was sent when the sender may have given this session up: its successor was there."""
        later = [session.opened_ns for session in self.receivers if session.opened_ns > receiver.opened_ns]
        return int(np.searchsorted(self.sends.begun_ns, min(later))) if later else self.sendable

    def _reports(self, session: Session, *names: str) -> list[Report]:
        own = self.sender.epoch
        return [
            report
            for report in session.events
            if report.name in names
            and report.fields["flow"] == self.flow
            and (session is self.sender or report.fields["epoch"] == own)
        ]

    def _mask(self, ranges: Ranges) -> Numbers:
        mask = np.zeros(self.sendable, bool)
        for first, end in ranges:
            mask[max(first, 0) : max(end, 0)] = True
        return mask

    def _mark_all(self, fault: Fault, sequence: Numbers, receiver: Session) -> None:
        self.mark(fault, self._mask((int(number), int(number) + 1) for number in sequence), receiver)

    def mark(self, fault: Fault, mask: Numbers, receiver: Session | None) -> None:
        """A finding for each run of messages in the mask."""
        edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False]))))
        for first, end in zip(edges[::2], edges[1::2], strict=True):
            self._find(fault, int(first), int(end), receiver)

    def _find(self, fault: Fault, first: int, end: int, receiver: Session | None, text: str = "") -> None:
        name = name_of(receiver) if receiver else "-"
        self.verdict.findings.append(Finding(fault, self.flow, name_of(self.sender), name, first, end, text))


def name_of(session: Session) -> str:
    """For findings."""
    return f"{session.node}/{session.epoch:016x}"
