"""Makes messages of flow ``spectrum`` from the E3 agent's I/Q: a symbol in each PDU, or slots in shared memory.

Slots that cannot be read are counted, and the next slot that is sent says how many are missing before it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from twinlink_e3 import (
    ALL_SYMBOLS,
    RAN_FUNCTION,
    IndicationMessage,
    IqDataIndication,
    SensingIndication,
    SharedMemoryError,
    SlotIndication,
)

from twinlink.appkit.journal import Journal
from twinlink.slots import Clock, Slot, SlotSpectrum

from .counters import Counters
from .observation import Carrier, observe
from .reduction import Reduction
from .sensing_reader import SensingReader
from .session import Session
from .slot_reader import IndicatedSlot, SlotReader

MAX_TIME_NS = 2**63
MAX_WAIT_NS = 5_000_000  # of a slot for others of its message
PAUSE_PART = 8  # at most an eighth of the gNB's rows is written during a pause
NS_PER_SLOT_AT_15_KHZ = 1_000_000  # 3GPP TS 38.211 table 4.3.2-1


@dataclass(slots=True)
class _Copy:
    """An indicated slot, and its I/Q, unless it is left out or ``missing``."""

    slot: IndicatedSlot
    not_indicated: int  # slots that would have been sent, before it
    head: SlotSpectrum | None = None
    symbols: int = 0
    samples: NDArray[np.float16] | None = None
    missing: int = 0


class Observations:
    """Used by one thread.

    Args:
        carrier: how to read I/Q.
        reduction: what is sent of a slot.
        counters: counts here.
        journal: for events.
        has_twin: whether a twin is up; without one, nothing is read or sent.
        send: sends a message.
        send_ranges: sends a message of flow ``sensing``; None without that flow.
    """

    def __init__(
        self,
        carrier: Carrier,
        reduction: Reduction,
        counters: Counters,
        journal: Journal,
        has_twin: Callable[[], bool],
        send: Callable[[bytes], object],
        send_ranges: Callable[[bytes], object] | None = None,
    ) -> None:
        self._carrier = carrier
        self._reduction = reduction
        self._counters = counters
        self._journal = journal
        self._has_twin = has_twin
        self._send = send
        self._send_ranges = send_ranges
        self._sensing = SensingReader()
        self._slot_ns = NS_PER_SLOT_AT_15_KHZ * 15_000 // carrier.scs_hz
        self._reader = SlotReader(self._slot_ns)
        self._clock: Clock | None = None  # as the log has it
        self._indicated: list[tuple[IndicatedSlot, int]] = []  # with the slots missing before it
        self._copied: list[_Copy] = []
        self._not_indicated = 0  # that would have been sent, before the next slot
        self._waiting: list[Slot] = []
        self._head: SlotSpectrum | None = None  # of the waiting slots
        self._heads: dict[tuple[int, ...], SlotSpectrum] = {}  # by antennas
        self._waits_since_ns = 0
        self._came = False  # slots, since the last `pause_ns`
        self._missing = 0

    def take(self, message: IndicationMessage, session: Session, observed_ns: int) -> None:
        """Take in an indication: a symbol or sensing ranges are sent; a slot in shared memory is sent after `copy`.

        Args:
            message: that the session expects.
            session: with the agent.
            observed_ns: when it was read, Unix time.

        Raises:
            MalformedPdu: it cannot be read.
        """
        codec = session.codec
        if session.by_reference and message.ran_function_identifier == RAN_FUNCTION:
            self._take_ranges(codec.decode_structure(SensingIndication, message.protocol_data), observed_ns)
            return
        self._counters.indications += 1
        if session.by_reference:
            self._indicated_slot(codec.decode_structure(SlotIndication, message.protocol_data), observed_ns)
            return
        data = codec.decode_structure(IqDataIndication, message.protocol_data)
        payload = observe(message, data, self._carrier, observed_ns).encode()
        if not self._has_twin():
            self._counters.without_twin += 1
            return
        self._send(payload)
        self._counters.exported += 1

    @property
    def pending(self) -> bool:
        """Whether slots were indicated that are not copied yet."""
        return bool(self._indicated)

    def copy(self, all_read: bool) -> bool:
        """Copy the indicated slots, to be sent by `send`; returns whether there are any.

        Args:
            all_read: whether there was no further PDU of the agent.
        """
        slots, self._indicated = self._indicated, []
        if slots and all_read:
            self._reader.all_read(time.monotonic_ns())
        if not self._has_twin():
            self._counters.without_twin += len(slots)
            return False
        self._copied = [self._copy(slot, not_indicated) for slot, not_indicated in slots]
        self._came = self._came or bool(slots)
        return bool(slots)

    def send(self, all_read: bool) -> None:
        """Send the copied slots that count, if they make up messages.

        Args:
            all_read: whether, after `copy`, there was no further PDU of the agent.
        """
        copied, self._copied = self._copied, []
        if all_read:
            self._reader.all_read(time.monotonic_ns())
        for each in copied:
            self._missing += each.not_indicated + each.missing
            if each.samples is None or each.head is None:
                continue
            if self._reader.is_late(each.slot):
                self._count_late()
                self._missing += 1
            else:
                self._add(each.slot, each.head, each.symbols, each.samples)
        if self._reader.clock is not self._clock:
            self._report_clock()

    def pause_ns(self) -> int:
        """How long to wait before reading: until all slots of the message but the last can have come.

        To read several slots in a row takes less processor time than to wait for each.
        """
        came, self._came = self._came, False
        lacking = self._reduction.slots_per_message - len(self._waiting)
        return min(lacking - 1, self._reader.rows // PAUSE_PART) * self._slot_ns if came else 0

    def next_timer_ns(self) -> int | None:
        """Monotonic time at which to call `timer`; None if nothing waits."""
        return self._waits_since_ns + MAX_WAIT_NS if self._waiting else None

    def timer(self, now_ns: int) -> None:
        """Send slots that have waited for others long enough."""
        if self._waiting and now_ns >= self._waits_since_ns + MAX_WAIT_NS:
            self._flush()

    def _flush(self) -> None:
        """Send the slots that wait for others."""
        if self._head and self._waiting:
            message = replace(self._head, slots=tuple(self._waiting))
            self._waiting.clear()
            self._send(message.encode(compress=self._reduction.compress))
            self._counters.exported += len(message.slots)

    def close(self) -> None:
        """Send what waits, and close the shared memory."""
        self._flush()
        self._reader.close()
        self._sensing.close()

    def _take_ranges(self, indication: SensingIndication, observed_ns: int) -> None:
        if self._send_ranges is None or not self._has_twin():
            return
        try:
            ranges = self._sensing.read(indication, observed_ns)
            payload = ranges.encode() if ranges else None
        except (SharedMemoryError, ValueError) as error:
            self._journal.complaint("sensing-unreadable", f"the sensing ranges of a slot cannot be read: {error}")
            return
        if ranges and payload:
            self._counters.sensing_missing += ranges.missing
            self._send_ranges(payload)
            self._counters.sensing += 1

    def _indicated_slot(self, indication: SlotIndication, observed_ns: int) -> None:
        counters, reader = self._counters, self._reader
        if not 0 <= indication.timestamp < MAX_TIME_NS:  # an integer without bounds, in ASN.1
            indication = replace(indication, timestamp=0)
        if indication.n_cells is not None and indication.n_cells > 1:
            text = f"the gNB indicates {indication.n_cells} cells: the first is exported, cell {indication.cell_id}"
            self._journal.complaint("other-cells", f"{text}; the rows of the others count as not indicated")
        try:
            if not reader.is_open(indication.shm_name):
                self._finish()
                reader.open(indication.shm_name)
                text = f"reading I/Q of the gNB's slots from shared memory {indication.shm_name}"
                self._journal.event("slots", f"{text}, {reader.antennas} antennas", shm_name=indication.shm_name)
            slot = reader.indicated(indication, observed_ns)
        except SharedMemoryError as error:
            counters.slots_unreadable += 1
            self._missing += 1
            self._journal.complaint("slots-unreadable", f"the I/Q of a slot cannot be read: {error}")
            return
        if slot is None:
            counters.for_others += 1
            return
        counters.slots_not_indicated += slot.skipped
        every = self._reduction.every
        self._not_indicated += (slot.number - 1) // every - (slot.number - 1 - slot.skipped) // every
        if slot.number % every:
            counters.left_out += 1
        else:
            self._indicated.append((slot, self._not_indicated))
            self._not_indicated = 0

    def _finish(self) -> None:
        """Send the slots of a gNB that has made its shared memory anew: what was open still has them."""
        if self._copied:
            self.send(all_read=False)
        if self._indicated and self.copy(all_read=False):
            self.send(all_read=False)

    def _copy(self, slot: IndicatedSlot, not_indicated: int) -> _Copy:
        counters, reduction, indication = self._counters, self._reduction, slot.indication
        copy = _Copy(slot, not_indicated)
        in_row = self._reader.antennas
        present = range(in_row if indication.n_rx_ant is None else min(indication.n_rx_ant, in_row))
        antennas = tuple(antenna for antenna in reduction.antennas if antenna in present)
        mask = indication.valid_symbol_mask
        copy.symbols = reduction.symbols & (ALL_SYMBOLS if mask is None else mask)
        if not copy.symbols or not antennas:
            counters.left_out += 1
            if not antennas:
                text = f"none of the antennas that --antennas names exists: the gNB has {len(present)}"
                self._journal.complaint("no-antenna", text)
            return copy
        copy.head = head = self._head_for(antennas)
        try:
            copy.samples = self._reader.read(slot, antennas, copy.symbols, head.first_prb, head.n_prbs)
        except SharedMemoryError as error:
            counters.slots_unreadable += 1
            copy.missing = 1
            self._journal.complaint("slots-unreadable", f"the I/Q of a slot cannot be read: {error}")
            return copy
        if copy.samples is None:
            self._count_late()
            copy.missing = 1
        return copy

    def _count_late(self) -> None:
        self._counters.slots_late += 1
        self._journal.complaint("slots-late", "slots were read too late: the gNB may have overwritten them")

    def _add(self, slot: IndicatedSlot, head: SlotSpectrum, symbols: int, samples: NDArray[np.float16]) -> None:
        """Put a slot into the message that is being made up."""
        if self._head is not head:
            self._flush()
            self._head = head
        if not self._waiting:
            self._waits_since_ns = time.monotonic_ns()
        data = self._reduction.reduce(head, samples)
        missing, self._missing = self._missing, 0
        indication = slot.indication
        self._waiting.append(
            Slot(
                data, indication.sfn, indication.slot, symbols, slot.observed_ns, indication.timestamp,
                self._reader.clock, missing,
            )
        )  # fmt: skip
        if len(self._waiting) >= self._reduction.slots_per_message:
            self._flush()

    def _head_for(self, antennas: tuple[int, ...]) -> SlotSpectrum:
        if antennas not in self._heads:
            carrier = self._carrier
            self._heads[antennas] = self._reduction.head(carrier.n_prbs, carrier.scs_hz, carrier.centre_hz, antennas)
        return self._heads[antennas]

    def _report_clock(self) -> None:
        clock = self._clock = self._reader.clock
        if clock is Clock.UNKNOWN:
            text = "the gNB's times are of no clock of this host: only newer indications tell slots that are too old"
        else:
            text = f"the gNB's times are of the clock {clock.name.lower()}"
        self._journal.event("slot-clock", text, clock=clock.name.lower())
