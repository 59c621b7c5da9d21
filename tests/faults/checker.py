"""Judges ledgers: for every flow, sender session and receiving node, sent = delivered once, in order, + reported gap.

Pure: ledgers in, a `Verdict` out.  Rules for every message sent:

1. A session of the receiving node delivers it at most once, with the payload that was sent, after all earlier ones.
2. A session names each message that it skips, rejects or never gets in exactly one `Gap` or `Unclaimed`, and no
   delivered one.
3. What did not arrive at a node, the sender names in exactly one `Lost` of that node, or of all ("detect": or `flush`
   does, `Lost` being for what peers owed).
4. With "repair" both sides name the same messages.  With "detect" the sender may name more: it cannot know whether a
   message arrived without its ack; and a message from a `Gap` may come late, with a `Reordered`.
5. With "repair" a session is *owed* what was sent from the sender's `PeerUp` for it on, silence in between or not.
   While it lives, none of that is given up unless the flow's retention was full.

A killed process takes with it what only it knew.  Tolerated, and counted apart: what a sender had not got across when
it died (`died_with_sender`), what a receiver had acknowledged and its application not yet written down
(`died_with_receiver`; "repair": only behind the last message that it wrote down), and what a new receiver gets again
because its predecessor died before the ack was out.  What was sent before a `PeerUp` is lost, says the sender, and may
arrive nevertheless (`unpromised`); what was sent while one node had no session that was up, and another has, concerns
that one alone.
"""

from collections.abc import Sequence

import numpy as np

from .ledger import Sends, Session
from .pair import Pair, name_of
from .verdict import Fault, Finding, Verdict


def check(sessions: Sequence[Session]) -> Verdict:
    """Judge the ledgers of a run that has ended: faults healed, flows flushed, links closed."""
    verdict = Verdict()
    known = {session.epoch for session in sessions}
    nodes = sorted({session.node for session in sessions})
    for receiver in sessions:
        _strangers(verdict, receiver, known)
    for sender in sorted(sessions, key=lambda session: session.opened_ns):
        for flow, sends in sender.sends.items():
            verdict.sent += len(sends.sequence)
            _numbering(verdict, sender, flow, sends)
            pairs = []
            receivers = sorted(
                (one for one in sessions if one.role != sender.role and flow in one.receives),
                key=lambda session: session.opened_ns,
            )
            for node in nodes:
                its = [one for one in receivers if one.node == node]
                if its:
                    others = [one for one in receivers if one.node != node]
                    pairs.append(Pair(verdict, sender, flow, sends, its, others))
                    pairs[-1].judge()
            if pairs:
                _false_lost(pairs, known)
    for receiver in sessions:
        _old_sessions(verdict, receiver, sessions)
    return verdict


def _strangers(verdict: Verdict, receiver: Session, known: set[int]) -> None:
    """Deliveries and gaps of unknown sessions."""
    for (flow, epoch), deliveries in receiver.deliveries.items():
        if epoch not in known:
            for sequence in deliveries.sequence:
                verdict.findings.append(
                    Finding(
                        Fault.PHANTOM, flow, f"{epoch:016x}", receiver.node, sequence, sequence + 1, "no such session"
                    )
                )
    for report in receiver.events:
        if report.name in {"Gap", "Unclaimed"} and report.fields["epoch"] not in known:
            first, end = report.fields["first"], report.fields["end"]
            verdict.findings.append(
                Finding(Fault.PHANTOM_GAP, report.fields["flow"], "?", receiver.node, first, end, "no such session")
            )


def _numbering(verdict: Verdict, sender: Session, flow: str, sends: Sends) -> None:
    wrong = np.flatnonzero(sends.sequence != np.arange(len(sends.sequence)))
    if len(wrong):
        at = int(wrong[0])
        number = int(sends.sequence[at])
        text = f"message {at} of the session has number {number}"
        verdict.findings.append(Finding(Fault.NUMBERING, flow, name_of(sender), "-", number, number + 1, text))


def _false_lost(pairs: "Sequence[Pair]", known: set[int]) -> None:
    """A sender that lived to tell must not call lost what every node has, nor lost to a node what that one has.

    Of the dead it cannot know.  Nor can the checker, if it had a peer without a ledger here.
    """
    one = pairs[0]
    had = {report.fields["epoch"] for report in one.sender.events if report.name == "PeerUp"}
    if one.exact and one.sender.ended and had <= known:
        everywhere = np.logical_and.reduce([pair.survived | pair.acked for pair in pairs])
        unpromised = np.logical_or.reduce([pair.unpromised for pair in pairs])
        claimed = one.lost & ~one.lost_by_name | one.unsettled
        one.verdict.unpromised += int(np.count_nonzero(claimed & everywhere & unpromised))
        one.mark(Fault.FALSE_LOST, claimed & everywhere & ~unpromised, None)
        for pair in pairs:
            false = pair.lost_by_name & (pair.survived | pair.acked) & ~pair.sent_before_down
            pair.verdict.unpromised += int(np.count_nonzero(false & pair.unpromised))
            pair.mark(Fault.FALSE_LOST, false & ~pair.unpromised, pair.receivers[-1])


def _old_sessions(verdict: Verdict, receiver: Session, sessions: Sequence[Session]) -> None:
    """Nothing of a session may come after its successor, on any flow.

    The successor is there when `PeerUp` says so: what comes of it before its first hello has no name yet, and what of
    the old one had waited for something missing is delivered before it is given up.  An application that iterates may
    be late to ask: there, what came first on the flow has to come first.
    """
    by_epoch = {session.epoch: session for session in sessions}
    up_at = {report.fields["epoch"]: report.at_ns for report in reversed(receiver.events) if report.name == "PeerUp"}
    newest: dict[tuple[str, str], tuple[int, int]] = {}  # flow, node -> the last session's opening, when it was there
    for (flow, epoch), deliveries in receiver.deliveries.items():
        sender = by_epoch.get(epoch)
        if sender is not None and len(deliveries.at_ns):
            first_ns = int(deliveries.at_ns[0])
            begun = sender.opened_ns, first_ns if receiver.iterates else up_at.get(epoch, first_ns)
            newest[flow, sender.node] = max(newest.get((flow, sender.node), begun), begun)
    for (flow, epoch), deliveries in receiver.deliveries.items():
        sender = by_epoch.get(epoch)
        if sender is None or not len(deliveries.at_ns):
            continue
        opened_ns, from_ns = newest[flow, sender.node]
        late = deliveries.sequence[deliveries.at_ns > from_ns]
        if opened_ns > sender.opened_ns and len(late):
            first, end = int(late.min()), int(late.max()) + 1
            text = f"{len(late)} delivered after the session that followed it"
            verdict.findings.append(
                Finding(Fault.OLD_SESSION, flow, name_of(sender), name_of(receiver), first, end, text)
            )
