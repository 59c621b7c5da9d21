"""Why messages are not acknowledged, for a person, and what to do about it."""

from ..errors import AckTimeout
from ..protocol.session import NO_PEER, NOT_TAKEN, Missing, SendFlow
from .link_state import LinkState

_ADVICE = {
    NO_PEER: "what is sent after wait_ready() reaches a peer",
    NOT_TAKEN: "open a receiver for the flow there, under the same name, or let it read more",
}


def ack_timeout(link: LinkState, flow: SendFlow, missing: Missing, timeout: float | None) -> AckTimeout:
    """The error for what a flush did not see acknowledged; ``timeout``: of the flush, in s.

    The caller holds the lock of the session.
    """
    lost_for, session, what = missing.lost_for, link.driver.session, "lost"
    reasons, advice = list(lost_for), [_ADVICE[one] for one in lost_for if one in _ADVICE]
    if missing.outstanding:
        what = "lost or not acknowledged" if lost_for else "not acknowledged"
        if link.closed():
            reasons.append(f"the link {link.closed_because}")
        else:
            reason, remedy = _hold_up(flow, missing, is_up=bool(missing.unacked_by & session.up))
            reasons.append(reason)
            advice.append(remedy)
            what += f" within {timeout:g} s by {session.peer_names(missing.unacked_by)}" if timeout is not None else ""
    reason = "; ".join(reasons)
    text = f"flow {flow.flow!r}: sequence {missing.all} {what}: {reason}"
    return AckTimeout("; ".join((text, *advice)), tuple(missing.all), reason)


def _hold_up(flow: SendFlow, missing: Missing, is_up: bool) -> tuple[str, str]:
    """What the acks wait for, and what to do about it."""
    if not is_up:
        kept = (
            "what is kept for it is sent when it returns" if flow.repair else "the flow repairs nothing: send it again"
        )
        return "the peer is down", f"start it again, or wait; {kept}"
    _, unread_octets, on_ack_is_slow = flow.fullness
    if on_ack_is_slow:
        return "on_ack takes longer than acks take to come", "let on_ack do less, or give the acks to another thread"
    if max(end for _, end in missing.outstanding) <= flow.next_to_send:
        return (
            "all was transmitted, and the peer has not answered yet: it is busy or stopped, or its path is long",
            "give flush more time",
        )
    if flow.is_unread:
        unread = f"the peer's application reads slower than is sent, {unread_octets} octets are unread there"
        return unread, "send less, or let the peer read more"
    return "the path is slower than what is sent", "send less, or give flush more time"
