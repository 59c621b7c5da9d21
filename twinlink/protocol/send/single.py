"""The next single message of a flow, and its ack: the path of a round trip, one call deep.  No I/O, no clock.

Where nothing waits, is repaired or is given up, both are a few sums and tables.  `SendFlow.send` and `SendFlow.on_ack`
take them through six objects each, and every call costs half a microsecond while caches are cold.  So the steps of
these objects stand here in a row, and this module alone knows what is private to them.  Each function changes nothing,
and says so, where the case is another one.  tests/core/test_single.py holds that the long way does the same.

Ctrl-C comes where a call ends.  So what must not be parted stands without a call in between, as on the long way.
"""

from ...message import Ack
from ..frames import REJECTED, MessageFrame
from .flow import SendFlow
from .flow_control import MAX_UNCONSUMED, MAX_UNREPORTED_ACKS, SLACK_OCTETS
from .in_flight import FRAMING_OCTETS
from .queue import BULK_MESSAGES
from .retransmit_buffer import ENTRY_OVERHEAD_OCTETS

_new_ack = tuple.__new__


def sends_single(flow: SendFlow, frame: MessageFrame, size: int, now_mono_ns: int) -> bool:
    """Take in the next message of a flow that is awake and has nothing pending; True: transmit it now.

    False: nothing has changed; it takes `SendFlow.send`.
    """
    queue, unacked, receivers = flow.queue, flow.unacked, flow.receivers
    in_flight, window = flow.in_flight, flow.flow_control
    budget, of, singles, octets = in_flight.budget, in_flight._of, unacked.singles, size + FRAMING_OCTETS
    unconsumed = window.octets
    if (
        not receivers.up
        or size > unacked.room
        or size > receivers.least_payload
        or in_flight._single
        or len(singles) + 1 >= BULK_MESSAGES
        # as `InFlight.inline_room`
        or in_flight.uncertain
        or in_flight._transmit_until is not None
        or octets > budget.inline - budget.in_flight
        or octets > (budget.inline_share - in_flight._octets if of else budget.unfragmented)
        # as `FlowControlWindow.admit`
        or (unconsumed + size > window._limit and unconsumed > SLACK_OCTETS)
        or window._messages >= MAX_UNCONSUMED
        or window.unreported_acks >= MAX_UNREPORTED_ACKS
    ):
        return False
    sequence = queue.next_sequence
    end = sequence + 1
    window._messages += 1
    window.octets = unconsumed + size
    window._unconsumed.append((end, 1, size))
    singles[sequence] = now_mono_ns, receivers.all, frame  # from here on without a call
    unacked._end = queue.next_sequence = queue.next_to_send = end
    unacked.room -= size + ENTRY_OVERHEAD_OCTETS
    in_flight._octets += octets
    in_flight._transmitted += octets
    budget.in_flight += octets
    of[sequence] = octets
    flow.sent_octets += size
    return True


def on_single_ack(
    flow: SendFlow,
    epoch: int,
    consumed: int,
    record: tuple[int, int, int],
    t3_ns: int,
    t4_ns: int,
    t4_mono_ns: int,
) -> list[Ack] | None:
    """Take in the ack of one message (sequence, T1, T2) that the only peer, ``epoch``, owes; returns it.

    Also what it says is ``consumed``.  None: nothing has changed; it takes `SendFlow.on_ack` and `on_consumed`.
    """
    sequence, t1_ns, t2_ns = record
    queue, unacked, receivers = flow.queue, flow.unacked, flow.receivers
    entry = unacked.singles.get(sequence)
    if (
        entry is None
        or epoch not in entry[1]
        or epoch not in receivers.up
        or len(entry[1]) != 1
        or len(receivers.up) != 1
        or t2_ns == REJECTED
        or unacked.runs
        or unacked.lost
        or queue.retransmitted
        or queue._to_retransmit
        # of what is skipped without an ack, some is lost
        or (len(unacked.singles) > 1 and not (flow.repair and receivers.all_take_fragments))
    ):
        return None
    in_flight, window, peer = flow.in_flight, flow.flow_control, receivers.of[epoch]
    budget, of, samples = in_flight.budget, in_flight._of, flow.rtt._acks[epoch]
    ack = _new_ack(Ack, (sequence, t4_mono_ns - entry[0], t1_ns, t2_ns, t3_ns, t4_ns, epoch, flow.flow))
    size, freed = len(entry[2]) - unacked.framing_octets, of.get(sequence, 0)
    before = budget.in_flight
    flow.acknowledged += 1  # from here on without a call
    unacked.room += size + ENTRY_OVERHEAD_OCTETS
    del unacked.singles[sequence]
    if freed:
        del of[sequence]
        in_flight._octets -= freed
        budget.in_flight = before - freed
        if before - freed < budget.limit <= before:
            budget.on_room()
    samples.append(ack)
    if peer.consumed < consumed <= queue.next_to_send:
        peer.consumed = consumed
        parts = window._unconsumed
        while parts and parts[0][0] <= consumed:
            _, messages, octets = parts[0]
            window._messages -= messages
            window.octets -= octets
            parts.popleft()
    return [ack]
