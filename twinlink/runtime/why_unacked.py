"""Why messages are not acknowledged, for a person, and what to do about it."""

from collections.abc import Sequence

from ..errors import AckTimeout
from ..protocol.rangeset import RangeSet
from ..protocol.send.flow import SendFlow
from ..protocol.send.loss import NO_PEER, NOT_TAKEN
from .link_state import LinkState

_ADVICE = {
    NO_PEER: "what is sent after wait_ready() reaches a peer",
    NOT_TAKEN: "open a receiver for the flow there, under the same name, or let it read more",
}


def ack_timeout(
    link: LinkState,
    core: SendFlow,
    missing: RangeSet,
    outstanding: RangeSet,
    unacked_by: frozenset[int],
    lost_for: Sequence[str],
    timeout: float | None,
) -> AckTimeout:
    """The error for what a flush did not see acknowledged.

    Args:
        link: that of the flow.
        core: the flow.
        missing: the messages, of which are
        outstanding: those that may still be acknowledged, by the peers with the epochs
        unacked_by: that owe an ack.
        lost_for: why the others are lost.
        timeout: in s, of the flush.
    """
    reasons, advice, what = list(lost_for), [_ADVICE[one] for one in lost_for if one in _ADVICE], "lost"
    if outstanding:
        what = "lost or not acknowledged" if lost_for else "not acknowledged"
        if link.closed():
            reasons.append(f"the link {link.closed_because}")
        else:
            reason, remedy = _hold_up(link, core, outstanding, unacked_by)
            reasons.append(reason)
            advice.append(remedy)
            what += f" within {timeout:g} s by {link.peer_manager.names(unacked_by)}" if timeout is not None else ""
    reason = "; ".join(reasons)
    text = f"flow {core.flow!r}: sequence {missing} {what}: {reason}"
    return AckTimeout("; ".join((text, *advice)), tuple(missing), reason)


def _hold_up(link: LinkState, core: SendFlow, outstanding: RangeSet, unacked_by: frozenset[int]) -> tuple[str, str]:
    """What the acks wait for, and what to do about it."""
    flow_control, last = core.flow_control, max(end for _, end in outstanding)
    if not unacked_by & link.peer_manager.up:
        kept = (
            "what is kept for it is sent when it returns" if core.repair else "the flow repairs nothing: send it again"
        )
        return "the peer is down", f"start it again, or wait; {kept}"
    if flow_control.on_ack_is_slow:
        return "on_ack takes longer than acks take to come", "let on_ack do less, or give the acks to another thread"
    if last <= core.queue.next_to_send:
        return (
            "all was transmitted, and the peer has not answered yet: it is busy or stopped, or its path is long",
            "give flush more time",
        )
    if flow_control.is_half_full:
        unread = f"the peer's application reads slower than is sent, {flow_control.octets} octets are unread there"
        return unread, "send less, or let the peer read more"
    return "the path is slower than what is sent", "send less, or give flush more time"
