"""Makes messages of flow ``spectrum`` from the E3 agent's I/Q: a symbol in each PDU, or slots in shared memory.

Slots that cannot be read are counted, and the next slot that is sent says how many are missing before it.  Each
indication is counted once more, by what becomes of it: ``exported``, ``left_out``, ``slots_late``, ``slots_unreadable``
or ``without_twin``.
"""

import time
from collections import deque
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

from .cells import OneCell
from .counters import Counters
from .delays import Delays
from .digests import Digests
from .kpms import Kpms
from .observation import Carrier, observe
from .reduction import Reduction
from .sensing_reader import SensingReader
from .session import Session
from .slot_reader import MAX_TRANSIT_NS, IndicatedSlot, SlotReader, age_ns

MAX_TIME_NS = 2**63
MAX_MISSING = 2**32 - 1  # before one slot: the rest is told by the next
MAX_WAIT_NS = 5_000_000  # of a slot for others of its message
MAX_HELD_NS = 1_000_000_000  # of an indicated slot for the next indication: a twin decides on none that is so old
PAUSE_PART = 8  # at most an eighth of the gNB's rows is written during a pause
NS_PER_SLOT_AT_15_KHZ = 1_000_000  # 3GPP TS 38.211 table 4.3.2-1


@dataclass(slots=True)
class _Copy:
    """An indicated slot, and its I/Q, unless it is left out or ``missing``."""

    slot: IndicatedSlot
    missing: int  # slots that would have been sent, before it, or with it
    head: SlotSpectrum | None = None
    symbols: int = 0
    samples: NDArray[np.float16] | None = None
    copied_ns: int = 0


class Observations:
    """Used by one thread.

    Args:
        carrier: how to read I/Q.
        reduction: what is sent of a slot.
        counters: counts here.
        journal: for events.
        has_twin: whether a twin is up; without one, nothing is read or sent.
        send: sends a message.
        digests: is given what was heard.
        delays: counts how late observations leave.
        kpms: is given the indications of slots.
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
        digests: Digests,
        delays: Delays,
        kpms: Kpms,
        send_ranges: Callable[[bytes], object] | None = None,
    ) -> None:
        self._carrier = carrier
        self._reduction = reduction
        self._counters = counters
        self._journal = journal
        self._has_twin = has_twin
        self._send = send
        self._send_ranges = send_ranges
        self._digests = digests
        self._delays = delays
        self._kpms = kpms
        self._sensing = SensingReader()
        self._slot_ns = NS_PER_SLOT_AT_15_KHZ * 15_000 // carrier.scs_hz
        self._reader = SlotReader(self._slot_ns)
        self._one_cell = OneCell(carrier.cell_id, journal)
        self._opened_in = -1  # number of the setup since which shared memory was opened last
        self._clock: Clock | None = None  # as the log has it
        self._indicated: deque[tuple[IndicatedSlot, int]] = deque()  # with the slots missing before it
        self._copied: deque[_Copy] = deque()
        self._missing_before = 0  # slots that would have been sent, before the next one that is indicated
        self._waiting: list[Slot] = []
        self._head: SlotSpectrum | None = None  # of the waiting slots
        self._heads: dict[tuple[int, ...], SlotSpectrum] = {}  # by antennas
        self._waits_since_ns = 0
        self._came = False  # slots, since the last `pause_ns`
        self._missing = 0  # before the next one that is added

    def take(self, message: IndicationMessage, session: Session, observed_ns: int) -> None:
        """Take in an indication that the session expects, read at ``observed_ns``, Unix time.  Raises MalformedPdu.

        A symbol or sensing ranges are sent; a slot in shared memory is sent after `copy`.
        """
        codec = session.codec
        if session.by_reference and message.ran_function_identifier == RAN_FUNCTION:
            self._take_ranges(codec.decode_structure(SensingIndication, message.protocol_data), observed_ns)
            return
        if session.by_reference:
            self._indicated_slot(codec.decode_structure(SlotIndication, message.protocol_data), observed_ns)
            return
        data = codec.decode_structure(IqDataIndication, message.protocol_data)
        spectrum = observe(message, data, self._carrier, observed_ns)
        payload = spectrum.encode()
        self._counters.indications += 1
        self._digests.add_symbol(spectrum)
        if not self._has_twin():
            self._counters.without_twin += 1
            return
        self._send(payload)
        self._counters.exported += 1
        self._delays.left(time.time_ns() - observed_ns, None)

    @property
    def pending(self) -> bool:
        """Whether there are slots to `copy` or to `send`, though the agent may have sent nothing more."""
        now_ns = time.monotonic_ns()
        return self._is_written(now_ns) or bool(self._copied and now_ns >= self._copied[0].copied_ns + MAX_TRANSIT_NS)

    def copy(self, all_read: bool) -> bool:
        """Copy the indicated slots whose rows are complete, to be sent by `send`; returns whether there are any.

        Args:
            all_read: whether there was no further PDU of the agent.
        """
        if not self._indicated:
            return False
        now_ns, slots = time.monotonic_ns(), []
        if all_read:
            self._reader.all_read(now_ns)
        while self._is_written(now_ns):
            slots.append(self._indicated.popleft())
        if not self._has_twin():
            self._counters.without_twin += len(slots)
            return False
        self._copied.extend(self._copy(slot, missing) for slot, missing in slots)
        self._came = self._came or bool(slots)
        return bool(slots)

    def send(self, all_read: bool, last: bool = False) -> None:
        """Send the copied slots that count, if they make up messages; those of which that is not yet known wait.

        Args:
            all_read: whether, after `copy`, there was no further PDU of the agent.
            last: no further indication comes: what is not known to count is late.
        """
        if not self._copied:
            return
        if all_read:
            self._reader.all_read(time.monotonic_ns())
        while self._copied:
            each = self._copied[0]
            counts = False if each.samples is None else self._reader.counts(each.slot, each.copied_ns)
            if counts is None and not last:
                break
            self._copied.popleft()
            self._missing += each.missing
            if each.samples is None or each.head is None:
                continue
            if counts:
                self._add(each.slot, each.head, each.symbols, each.samples)
            else:
                self._count_late()
                self._missing += 1
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
        """Monotonic time at which to call `timer`, and to handle what is `pending`; None if nothing waits."""
        times = [self._waits_since_ns + MAX_WAIT_NS] if self._waiting else []
        if self._copied:
            times.append(self._copied[0].copied_ns + MAX_TRANSIT_NS)
        if self._indicated:
            slot, _ = self._indicated[0]
            written_ns = self._reader.written_ns(slot)
            times.append(slot.read_ns + MAX_HELD_NS if written_ns is None else written_ns)
        return min(times, default=None)

    def timer(self, now_ns: int) -> None:
        """Send slots that have waited for others long enough; give one up that has waited for the next indication."""
        if self._waiting and now_ns >= self._waits_since_ns + MAX_WAIT_NS:
            self._flush()
        if self._indicated and now_ns >= self._indicated[0][0].read_ns + MAX_HELD_NS and not self._is_written(now_ns):
            self._give_up()

    def finish(self) -> None:
        """Send what was indicated, as no further indication comes of this agent, or of this shared memory."""
        self.copy(all_read=False)
        self.send(all_read=False, last=True)
        self._give_up()

    def _flush(self) -> None:
        """Send the slots that wait for others."""
        if self._head and self._waiting:
            message = replace(self._head, slots=tuple(self._waiting))
            self._waiting.clear()
            self._send(message.encode(compress=self._reduction.compress))
            self._counters.exported += len(message.slots)
            now_ns = time.time_ns()
            for slot in message.slots:
                self._delays.left(now_ns - slot.observed_ns, age_ns(slot.clock, slot.gnb_ns))

    def close(self) -> None:
        """Send what was indicated and what waits, and close the shared memory."""
        self.finish()
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
        try:
            if not reader.is_open(indication.shm_name):
                self._open(indication)
            indication, ours = self._one_cell.choose(indication)
            if not 0 <= indication.timestamp < MAX_TIME_NS:  # an integer without bounds, in ASN.1
                indication = replace(indication, timestamp=0)
            slot = reader.indicated(indication, observed_ns, ours)
        except SharedMemoryError as error:
            counters.indications += 1
            self._missing_before += 1
            self._count_unreadable(1, str(error))
            return
        if slot is None:
            counters.for_others += 1
            return
        counters.indications += 1
        counters.slots_not_indicated += slot.skipped
        if ours:
            self._kpms.slot(indication, observed_ns, slot.skipped)
        every = self._reduction.every
        self._missing_before += (slot.order - 1) // every - (slot.order - 1 - slot.skipped) // every
        if not ours or slot.order % every:
            counters.left_out += 1
        else:
            self._indicated.append((slot, self._missing_before))
            self._missing_before = 0

    def _open(self, indication: SlotIndication) -> None:
        """Open the shared memory of a gNB that has started, or of one that names another each time.

        Raises SharedMemoryError.
        """
        self.finish()
        self._one_cell.begin_anew()
        self._reader.open(indication.shm_name, names_cells=indication.names_cells)
        again, self._opened_in = self._opened_in == self._counters.setups, self._counters.setups
        log = self._journal.complaint if again else self._journal.event
        text = f"reading I/Q of the gNB's slots from shared memory {indication.shm_name}"
        log("slots", f"{text}, {self._reader.antennas} antennas", shm_name=indication.shm_name)

    def _is_written(self, now_ns: int) -> bool:
        """Whether the row of the first indicated slot is complete."""
        if not self._indicated:
            return False
        written_ns = self._reader.written_ns(self._indicated[0][0])
        return written_ns is not None and now_ns >= written_ns

    def _give_up(self) -> None:
        """Count the indicated slots as missing: nothing tells that the gNB has written their rows."""
        slots = list(self._indicated)
        self._indicated.clear()
        self._missing += sum(missing + 1 for _, missing in slots)
        if not self._has_twin():
            self._counters.without_twin += len(slots)
        elif slots:
            self._count_unreadable(len(slots), "no later indication has come, which tells that the gNB has written it")

    def _count_unreadable(self, slots: int, reason: str) -> None:
        self._counters.slots_unreadable += slots
        self._journal.complaint("slots-unreadable", f"the I/Q of a slot cannot be read: {reason}")

    def _copy(self, slot: IndicatedSlot, missing: int) -> _Copy:
        reduction, indication = self._reduction, slot.indication
        copy = _Copy(slot, missing)
        in_row = self._reader.antennas
        present = range(in_row if indication.n_rx_ant is None else min(indication.n_rx_ant, in_row))
        antennas = tuple(antenna for antenna in reduction.antennas if antenna in present)
        mask = indication.valid_symbol_mask
        copy.symbols = reduction.symbols & (ALL_SYMBOLS if mask is None else mask)
        if not copy.symbols or not antennas:
            self._counters.left_out += 1
            if not antennas:
                text = f"none of the antennas that --antennas names exists: the gNB has {len(present)}"
                self._journal.complaint("no-antenna", text)
            return copy
        copy.head = head = self._head_for(antennas)
        try:
            copy.samples = self._reader.read(slot, antennas, copy.symbols, head.first_prb, head.n_prbs)
        except SharedMemoryError as error:
            self._count_unreadable(1, str(error))
            copy.missing += 1
            return copy
        copy.copied_ns = time.monotonic_ns()
        if copy.samples is None:
            self._count_late()
            copy.missing += 1
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
        missing = min(self._missing, MAX_MISSING)
        self._missing -= missing
        self._digests.add_slot(head, slot.observed_ns, samples, missing)
        data = self._reduction.reduce(head, samples)
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
        self._journal.complaint("slot-clock", text, clock=clock.name.lower())
