"""Whether a message is young enough to be delivered, and what that says of the flow's state.  No I/O, no clock."""

from ... import events as ev
from ...message import Message
from ...sync import State
from ..context import Context
from .flow import PeerStream, ReceiveFlow


class AgeFilter:
    """For flows whose age is limited, or watched by a `Sync`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def admits(self, stream: PeerStream, message: Message) -> bool:
        """Whether the message is to be delivered."""
        receive_flow, now, mono_ns = stream.receive_flow, self._context.now_ns, self._context.mono_ns
        sync = receive_flow.sync
        if receive_flow.max_age_ns is not None and now - message.sent_ns > receive_flow.max_age_ns:
            receive_flow.drop_stale(stream, message)
            if sync is not None:
                sync.missed(1, mono_ns)
            return False
        if sync is not None:
            sync.arrived(message.sequence, message.sent_ns, now, mono_ns, stream.epoch)
            if sync.state is not State.IN_SYNC:
                self.report_changes(receive_flow)
        return True

    def report_changes(self, receive_flow: ReceiveFlow) -> None:
        """Report a change of the flow's state, and messages that were dropped as stale."""
        sync, context = receive_flow.sync, self._context
        if sync is not None and (state := sync.look(context.mono_ns)) is not None:
            age_ns, completeness = sync.age_ns(context.mono_ns), sync.completeness(context.mono_ns)
            context.report(ev.SyncChanged(context.now_ns, receive_flow.flow, state.value, age_ns, completeness))
        for epoch, first, end in receive_flow.stale.take():
            context.report(ev.Stale(context.now_ns, receive_flow.flow, epoch, first, end))
