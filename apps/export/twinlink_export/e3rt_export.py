"""Slots of I/Q as an E3RT trace (`twinlink_export.e3rt`): times, frame, slot, cell, antennas and I/Q; all else is 0."""

import heapq
from contextlib import ExitStack
from typing import IO, NamedTuple

import numpy as np

from twinlink.appkit import outputs
from twinlink.errors import ConfigurationError, MalformedPayload
from twinlink.process.files import whole
from twinlink.slots import Clock, Content, Slot, SlotSpectrum
from twinlink.spectrum import SUBCARRIERS_PER_PRB

from .e3rt import (
    ANTENNAS,
    CELL,
    FILE_HEAD,
    MAGIC,
    PART,
    PRBS,
    PUSCH,
    RECORD_HEAD,
    SHAPE,
    SLOT,
    SYMBOLS,
    TAI_NS,
    VERSION,
)
from .in_order import in_order
from .request import Outcome, Request
from .source import Message, Source, wants
from .spectra import spectrum_of

WAITING = 64  # slots that are held to be put in order, 47 MB
_MAX_CELLS = 65_535


class _Held(NamedTuple):
    tai_ns: int
    number: int
    message: Message
    found: SlotSpectrum
    slot: Slot


class _Trace:
    """A trace that is written slot by slot, in ascending TAI time."""

    def __init__(self, file: IO[bytes], cells: dict[str, int]) -> None:
        self.slots = self.late = self.odd = 0
        self._file, self._cells = file, cells
        self._held: list[_Held] = []
        self._number, self._last_ns = 0, 0
        file.write(FILE_HEAD.pack(MAGIC, VERSION, VERSION, 0))

    def add(self, message: Message, found: SlotSpectrum) -> None:
        fits = found.antennas[-1] < ANTENNAS and found.first_prb + found.n_prbs <= PRBS
        for slot in found.slots:
            if not fits:
                self.odd += 1
                continue
            tai_ns = slot.gnb_ns if slot.clock is Clock.TAI else slot.observed_ns + TAI_NS
            heapq.heappush(self._held, _Held(tai_ns, self._number, message, found, slot))
            self._number += 1
            while len(self._held) > WAITING:
                self._write(heapq.heappop(self._held))

    def finish(self) -> None:
        while self._held:
            self._write(heapq.heappop(self._held))

    def _write(self, held: _Held) -> None:
        if held.tai_ns < self._last_ns:
            self.late += 1
            return
        found, slot = held.found, held.slot
        row = np.zeros(SHAPE, "<f2")
        symbols = [symbol for symbol in range(SYMBOLS) if slot.symbols >> symbol & 1]
        first = found.first_prb * SUBCARRIERS_PER_PRB
        data = slot.data
        if data.dtype == np.int16:
            data = (data.astype(np.float32) * np.float32(found.beta)).astype(np.float16)
        for antenna, values in zip(found.antennas, data, strict=True):
            row[antenna, symbols, first : first + values.shape[1]] = values
        cell = self._cells[held.message.node]
        head = SLOT.pack(
            slot.observed_ns, held.tai_ns, slot.sfn, slot.slot, cell, found.antennas[-1] + 1, 0, len(self._cells), 0, 0
        )  # fmt: skip
        self._file.write(RECORD_HEAD.pack(PUSCH, 0, len(head) + 2 * PART.size + row.nbytes))
        self._file.writelines((head, PART.pack(row.nbytes), row.data.cast("B"), PART.pack(0)))
        self.slots += 1
        self._last_ns = held.tai_ns


def export(request: Request) -> Outcome:
    """Write a trace.  Raises ConfigurationError where there are no slots of I/Q."""
    outputs.refuse_existing("--out", [request.out], request.overwrite)
    nodes: dict[int, None] = {}

    def look(message: Message) -> None:
        if wants(message.flow, request.flows) and _slots_of(message) is not None:
            nodes[message.epoch] = None

    source = Source(request.files, look)
    if not nodes:
        raise ConfigurationError(f"{source.reports[0].path} has no slots of I/Q on flows {','.join(request.flows)}")
    with ExitStack() as stack:
        file = stack.enter_context(stack.enter_context(whole(request.out)).open("wb"))
        trace = _Trace(file, _cells([source.node(epoch) for epoch in nodes]))
        wanted = (message for message in source.messages() if wants(message.flow, request.flows))
        for message in in_order(wanted, source.recorded):
            if (found := _slots_of(message)) is not None:
                trace.add(message, found)
        trace.finish()
    problems = list(source.problems)
    if trace.odd:
        problems.append(f"{trace.odd} slots have more than {ANTENNAS} antennas or {PRBS} PRBs, and are left out")
    if trace.late:
        problems.append(f"{trace.late} slots are earlier than those before them, and are left out")
    return Outcome({request.out: trace.slots}, "slots", problems, source.notes)


def _slots_of(message: Message) -> SlotSpectrum | None:
    try:
        found = spectrum_of(message.flow, message.payload)
    except MalformedPayload:
        return None
    is_iq = isinstance(found, SlotSpectrum) and found.content is Content.IQ and not found.slot_mean
    return found if is_iq and isinstance(found, SlotSpectrum) else None


def _cells(nodes: list[str]) -> dict[str, int]:
    """The cell of each node: the number in its name if an import has given it that, else one that is free."""
    found: dict[str, int] = {}
    for node in nodes:
        number = node.removeprefix(CELL)
        if node.startswith(CELL) and number.isdecimal() and int(number) <= _MAX_CELLS:
            found[node] = int(number)
    for node in nodes:
        if node not in found:
            found[node] = next(number for number in range(_MAX_CELLS + 1) if number not in found.values())
    return found
