"""I/Q of a recording as SigMF: a recording of SigMF for each flow, node and layout of its records."""

import hashlib
import heapq
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import twinlink
from twinlink.appkit import outputs
from twinlink.errors import ConfigurationError, MalformedPayload
from twinlink.process.files import scratch, whole
from twinlink.protocol.rangeset import RangeSet
from twinlink.recording.account import listed
from twinlink.slots import SYMBOLS, Slot, SlotSpectrum
from twinlink.spectrum import SUBCARRIERS_PER_PRB, Spectrum

from .decisions import Decisions
from .in_order import in_order
from .request import Outcome, Request
from .sigmf_meta import (
    BLOCKED,
    CF32,
    CI16,
    DATA,
    DETECTED,
    EXTENSIONS,
    META,
    RECORD_LABELS,
    SIGMF_VERSION,
    SLOTS,
    SYMBOL,
    pair,
    to_datetime,
)
from .sigmf_survey import Facts, Layout, Survey, iq_of
from .source import Message, Source, Stream

_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")
_Place = tuple[str, str, Layout]  # flow and node, whose sessions are joined


class _Open(NamedTuple):
    """An annotation that has not ended."""

    start: int
    fields: dict[str, Any]


class _Writer:
    """One recording of SigMF, written record by record."""

    def __init__(
        self, stack: ExitStack, path: Path, flow: str, node: str, layout: Layout, facts: Facts, source: Source
    ) -> None:
        self.path, self.records = path, 0
        self._flow, self._node, self._layout, self._facts = flow, node, layout, facts
        data_path = path.with_name(path.name.removesuffix(META) + DATA)
        self._meta_part = stack.enter_context(whole(path))
        self._data: IO[bytes] = stack.enter_context(stack.enter_context(whole(data_path)).open("wb"))
        self._lines: IO[bytes] = stack.enter_context(scratch(path))
        self._sha512 = hashlib.sha512()
        self._symbols = [s for s in range(SYMBOLS) if facts.symbols >> s & 1] if layout.head else [0]
        self._bins = layout.n_prbs * SUBCARRIERS_PER_PRB
        self._size = len(layout.antennas) * len(self._symbols) * self._bins  # samples of a record
        self._missing: dict[Stream, RangeSet] = {}
        self._named: list[dict[str, Any]] = []
        for missing in source.missing:
            direction, flow_, epoch = missing.stream
            if flow_ == flow and source.node(epoch) == node and missing.ranges:
                of = self._missing.setdefault(missing.stream, RangeSet())
                for first, end in missing.ranges:
                    of.add(first, end)
                named = {"direction": direction, "epoch": f"{epoch:016x}", "reason": missing.reason}
                self._named.append(named | {"ranges": listed(missing.ranges)})
        self._captures: list[dict[str, Any]] = []
        self._before: tuple[Stream, int, float] | None = None  # of the last message: its sequence and centre
        self._lost = 0  # samples
        self._steps, self._steps_ns, self._last_ns = 0, 0, 0
        self._open: dict[Any, _Open] = {}
        self._ended: list[tuple[int, bytes]] = []
        self._state: tuple[Any, ...] = ()

    @property
    def _at(self) -> int:
        return self.records * self._size

    def add(self, message: Message, found: Spectrum | SlotSpectrum, decisions: Decisions) -> None:
        if isinstance(found, Spectrum):
            self._begin_capture(message, found.centre_hz, found.observed_ns)
            self._annotate(message, decisions, found.observed_ns, found.centre_hz)
            self._append(message, found.observed_ns, found.samples, _symbol_fields(found))
        else:
            for number, slot in enumerate(found.slots):
                self._begin_capture(message, found.centre_hz, slot.observed_ns, number, slot.missing)
                self._annotate(message, decisions, slot.observed_ns, found.centre_hz)
                fields = _slot_fields(slot, number, len(self._layout.antennas))
                self._append(message, slot.observed_ns, self._samples(found, slot), fields)
        self._before = message.stream, message.sequence, found.centre_hz

    def _append(self, message: Message, observed_ns: int, samples: NDArray[Any], others: dict[str, Any]) -> None:
        octets = np.ascontiguousarray(samples, "<f4" if self._facts.halves else "<i2").data.cast("B")
        fields = {
            "core:sample_start": self._at,
            "core:sample_count": self._size,
            "core:label": RECORD_LABELS[SLOTS if self._layout.head else SYMBOL],
            "dapp:timestamp_ns": observed_ns,
            "twinlink:sequence": message.sequence,
            "twinlink:sent_ns": message.sent_ns,
            "twinlink:log_ns": message.log_ns,
        }
        self._data.write(octets)
        self._lines.write(json.dumps(fields | others, separators=(",", ":")).encode() + b"\n")
        self._sha512.update(octets)
        self.records += 1
        self._last_ns = observed_ns

    def _begin_capture(
        self, message: Message, centre_hz: float, observed_ns: int, number: int = 0, lost_slots: int = 0
    ) -> None:
        """Where this record, the ``number``-th of its message, does not follow the one before without a gap."""
        lost = 0
        if number == 0 and self._before is not None:
            stream, sequence, before_hz = self._before
            if stream == message.stream and message.sequence > sequence:
                taken = self._missing[stream].take(sequence + 1, message.sequence) if stream in self._missing else []
                lost = sum(end - first for first, end in taken)
            follows = stream == message.stream and message.sequence == sequence + 1 and before_hz == centre_hz
        else:
            follows = number > 0
        if follows and not lost_slots:
            self._steps += 1
            self._steps_ns += observed_ns - self._last_ns
            return
        if self._before is None and message.stream in self._missing:
            lost = sum(end - first for first, end in self._missing[message.stream].take(0, message.sequence))
        self._lost += lost * self._size
        layout = self._layout
        shift = (layout.first_prb + layout.n_prbs / 2 - layout.n_prbs_carrier / 2) * layout.prb_hz
        capture = {
            "core:sample_start": self._at,
            "core:frequency": centre_hz + shift,
            "core:datetime": to_datetime(observed_ns),
            "twinlink:centre_hz": centre_hz,
            "twinlink:epoch": f"{message.epoch:016x}",
            "twinlink:direction": message.direction,
            "twinlink:lost_messages": lost,
            "twinlink:lost_slots": lost_slots,
        }
        if layout.head is None:
            capture["core:global_index"] = self._at + self._lost
        self._captures.append(capture)

    def _samples(self, found: SlotSpectrum, slot: Slot) -> NDArray[Any]:
        """The slot with all symbols of the recording; those that it has not are zero."""
        values = slot.data if not self._facts.halves else found.in_lsb(slot)
        there = [row for row, symbol in enumerate(self._symbols) if slot.symbols >> symbol & 1]
        if len(there) == len(self._symbols):
            return values
        grid = np.zeros((values.shape[0], len(self._symbols), *values.shape[2:]), values.dtype)
        grid[:, there] = values
        return grid

    def _annotate(self, message: Message, decisions: Decisions, observed_ns: int, centre_hz: float) -> None:
        """Begin and end what the twin has asked for, what stands blocked, and labels."""
        labels = decisions.labels(message.epoch, observed_ns)
        detected = decisions.detected(message.log_ns) or frozenset()
        blocked = decisions.blocked(message.epoch) or frozenset()
        state = detected, blocked, tuple(labels), centre_hz
        if state == self._state:
            return
        self._state = state
        now: dict[Any, dict[str, Any]] = {}
        for name, prbs in ((DETECTED, detected), (BLOCKED, blocked)):
            for first, end in RangeSet((prb, prb + 1) for prb in prbs):
                now[name, first, end, centre_hz] = {"core:label": name}
        for label in labels:
            comment = {"core:comment": label.comment} if label.comment else {}
            now[label, label.first_prb, label.end_prb, centre_hz] = {"core:label": label.label, **comment}
        for key in [key for key in self._open if key not in now]:
            self._end(self._open.pop(key))
        layout = self._layout
        low, high = layout.first_prb, layout.first_prb + layout.n_prbs
        for key, fields in now.items():
            _, first, end, _ = key
            first, end = max(first, low), min(end, high)
            if key not in self._open and first < end:
                edges = layout.edge_hz(centre_hz, first), layout.edge_hz(centre_hz, end)
                fields |= {"core:freq_lower_edge": edges[0], "core:freq_upper_edge": edges[1]}
                self._open[key] = _Open(self._at, fields)

    def _end(self, annotation: _Open) -> None:
        span = {"core:sample_start": annotation.start, "core:sample_count": self._at - annotation.start}
        self._ended.append((annotation.start, json.dumps(span | annotation.fields, separators=(",", ":")).encode()))

    def finish(self) -> None:
        for annotation in self._open.values():
            self._end(annotation)
        self._ended.sort()
        self._data.flush()
        head = json.dumps({"global": self._global(), "captures": self._captures}, indent=1)
        with self._meta_part.open("wb") as file:
            file.write(f'{head[:-2]},\n "annotations": ['.encode())
            before = b"\n  "
            for _, line in heapq.merge(self._ended, self._record_lines(), key=lambda one: one[0]):
                file.write(before + line)
                before = b",\n  "
            file.write(b"\n ]\n}\n")

    def _record_lines(self) -> Iterator[tuple[int, bytes]]:
        self._lines.seek(0)
        for number, line in enumerate(self._lines):
            yield number * self._size, line.rstrip()

    def _global(self) -> dict[str, Any]:
        layout, head = self._layout, self._layout.head
        scs_khz = layout.scs_hz / 1e3
        found: dict[str, Any] = {
            "core:datatype": CF32 if self._facts.halves else CI16,
            "core:sample_rate": float(self._bins * layout.scs_hz),
            "core:version": SIGMF_VERSION,
            "core:sha512": self._sha512.hexdigest(),
            "core:recorder": f"twinlink {twinlink.__version__}",
            "core:description": "5G NR uplink after the gNB's FFT, lowest frequency first, exported from a recording",
            "core:extensions": EXTENSIONS,
            "dapp:domain": "frequency",
            "dapp:n_prbs": layout.n_prbs,
            "dapp:n_sc_per_prb": SUBCARRIERS_PER_PRB,
            "dapp:n_ants": len(layout.antennas),
            "dapp:n_symbols": len(self._symbols),
            "dapp:samples_per_slot": self._size,
            "dapp:subcarrier_spacing_khz": int(scs_khz) if scs_khz.is_integer() else scs_khz,
            "twinlink:records": SLOTS if head else SYMBOL,
            "twinlink:flow": self._flow,
            "twinlink:node": self._node,
            "twinlink:missing": self._named,
        }
        period_ms = round(self._steps_ns / self._steps / 1e6, 6) if self._steps else 0
        if 1e-3 <= period_ms <= 1e6:
            found["twinlink:record_period_ms"] = period_ms
        if layout.fft_size is not None:
            found["twinlink:fft_size"] = layout.fft_size
        if head:
            found |= {
                "twinlink:n_prbs_carrier": head.n_prbs_carrier,
                "twinlink:first_prb": head.first_prb,
                "twinlink:antennas": list(head.antennas),
                "twinlink:symbols": self._facts.symbols,
                "twinlink:beta": head.beta,
                "twinlink:every": head.every,
            }
        return found


def _symbol_fields(found: Spectrum) -> dict[str, Any]:
    symbol = {} if found.symbol is None else {"twinlink:symbol": found.symbol}
    return symbol | ({"twinlink:e3": found.e3} if found.e3 else {})


def _slot_fields(slot: Slot, number: int, antennas: int) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "dapp:n_ants": antennas,
        "dapp:valid_symbol_mask": slot.symbols,
        "twinlink:sfn": slot.sfn,
        "twinlink:slot": slot.slot,
        "twinlink:format": slot.data.dtype.name,
    }
    others = {"part": number, "gnb_ns": slot.gnb_ns, "clock": int(slot.clock), "missing": slot.missing}
    return fields | {f"twinlink:{name}": value for name, value in others.items() if value}


def export(request: Request) -> Outcome:
    """Write the recordings of SigMF.  Raises ConfigurationError where there is no I/Q."""
    survey = Survey(request.flows)
    source = Source(request.files, survey.look)
    if not survey.found:
        raise ConfigurationError(f"{source.reports[0].path} has no I/Q on flows {','.join(request.flows)}")
    facts: dict[_Place, Facts] = {}
    for (flow, epoch, layout), found in survey.found.items():
        of = facts.setdefault((flow, source.node(epoch), layout), Facts())
        of.symbols, of.halves = of.symbols | found.symbols, of.halves or found.halves
    places = _paths(request.out, list(facts))
    outputs.refuse_existing("--out", [one for path in places.values() for one in pair(path)], request.overwrite)
    written = _write(source, places, facts)
    problems = list(source.problems)
    if survey.malformed:
        problems.append(f"{survey.malformed} messages cannot be read as spectrum; the first: {survey.problem}")
    return Outcome(written, "records", problems, source.notes)


def _paths(out: Path, keys: list[_Place]) -> dict[_Place, Path]:
    """The metadata file of each recording of SigMF: ``out``, or where there are several, with flow and node in it."""
    out = pair(out)[0]
    if len(keys) == 1:
        return {keys[0]: out}
    found: dict[_Place, Path] = {}
    stem = out.name.removesuffix(META)
    for flow, node, layout in keys:
        name, number = f"{stem}.{flow}.{_NO_NAME.sub('_', node)[:64]}", 1
        while (path := out.with_name(f"{name}{f'.{number}' if number > 1 else ''}{META}")) in found.values():
            number += 1
        found[flow, node, layout] = path
    return found


def _write(source: Source, places: Mapping[_Place, Path], facts: Mapping[_Place, Facts]) -> dict[Path, int]:
    with ExitStack() as stack:
        writers = {key: _Writer(stack, path, *key, facts[key], source) for key, path in places.items()}
        decisions, flows = Decisions(), {flow for flow, _, _ in writers}
        wanted = (one for one in source.messages() if not decisions.take(one) and one.flow in flows)
        for message in in_order(wanted, source.recorded):
            try:
                found = iq_of(message)
            except MalformedPayload:
                continue
            if found is not None:
                writers[message.flow, message.node, Layout.of(found)].add(message, found, decisions)
        for writer in writers.values():
            writer.finish()
        return {writer.path: writer.records for writer in writers.values()}
