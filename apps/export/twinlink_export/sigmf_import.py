"""SigMF into a recording: of `twinlink export`, of the dApp framework, and of the RAN emulator."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlink.recording.writer import RecordingWriter
from twinlink.sensing import MAX_RANGES, FreeRange, SensingRanges
from twinlink.slots import MAX_SLOTS, MAX_TIME_NS, SYMBOLS, Clock, Slot, SlotSpectrum
from twinlink.spectrum import Spectrum

from .checked import Fields, NotReadable, read_json
from .decisions import LABELS
from .imported import Imported, Radio, digest, series_of
from .sigmf_meta import CF32, pair
from .sigmf_records import (
    LabelAt,
    Record,
    Shared,
    number_records,
    read_captures,
    read_labels,
    read_records,
    read_shared,
)


def import_file(path: Path, out: Path, radio: Radio, overwrite: bool) -> Imported:
    """Write a recording.  Raises OSError, NotReadable."""
    meta_path, data_path = pair(path)
    top = Fields(f"{meta_path}:", read_json(meta_path))
    general, captures, annotations = top.object("global"), top.objects("captures"), top.objects("annotations")
    if "core:dataset" in general:
        name = general.text("core:dataset")
        if "/" in name or "\0" in name or name in (".", ".."):
            raise general.wrong("core:dataset", "the name of a file beside this one")
        data_path = meta_path.with_name(name)
    shared = read_shared(str(meta_path), general, radio)
    octets = data_path.stat().st_size
    if octets % shared.sample_octets or not octets:
        raise NotReadable(
            f"{data_path} has {octets} octets, which are no samples of {shared.sample_octets} octets: {shared.datatype}"
        )
    sources = [digest(meta_path), digest(data_path, "sha512")]
    if "core:sha512" in general and sources[1].pop("sha512") != general.text("core:sha512").lower():
        raise NotReadable(
            f"{general.where}.core:sha512 is not that of {data_path}: one of the two was changed or damaged"
        )
    sources[1].pop("sha512", None)
    count = octets // shared.sample_octets
    found = read_captures(captures, shared, count)
    records, times = read_records(annotations, found, shared, count)
    series = series_of(sources)
    own = int(series, 16) ^ 1 or 2
    missing = number_records(records, shared, own, general)
    nodes = {record.epoch: shared.node for record in records}
    labels = read_labels(annotations, records, shared)
    imported = {"format": "sigmf", "files": sources, "times": times}
    with RecordingWriter(out, imported, series, nodes, overwrite) as writer:
        written = _write(writer, data_path, records, labels, shared)
        for epoch, ranges in missing.items():
            writer.leave_out(shared.flow, epoch, ranges)
    lacking = sum(ranges.count() for ranges in missing.values())
    notes = [f"{lacking} messages are missing, as {meta_path.name} says"] if lacking else []
    if times != "recorded":
        notes.append(
            "the records have no times of their own; "
            + ("they follow their captures' core:datetime" if times == "datetime" else "they begin at 1970")
        )
    if written.inexact:
        notes.append(f"{written.inexact:,} values have no float16 times beta: they were rounded")
    return Imported(len(records), "records", notes)


@dataclass(slots=True)
class _Written:
    inexact: int = 0


def _write(
    writer: RecordingWriter, data_path: Path, records: list[Record], labels: list[LabelAt], shared: Shared
) -> _Written:
    written, waiting, numbers = _Written(), labels[::-1], dict[tuple[str, int], int]()

    def add_beside(flow: str, record: Record, payload: bytes) -> None:
        number = numbers.get((flow, record.epoch), 0)
        numbers[flow, record.epoch] = number + 1
        sent_ns, log_ns = _times(record)
        writer.add(flow, record.epoch, number, sent_ns, log_ns, payload)

    with data_path.open("rb") as file:
        parts: list[Slot] = []
        for number, record in enumerate(records):
            while waiting and waiting[-1].record <= number:
                add_beside(LABELS, record, waiting.pop().label.encode())
            values = _samples(file.fileno(), record, shared)
            if record.fields is not None and (free := _sensing(record)) is not None:
                add_beside("sensing", record, free.encode())
            if shared.is_symbols:
                _add(writer, shared, record, _spectrum(values, record, shared).encode())
                continue
            parts.append(_slot(values, record, shared, written))
            following = records[number + 1] if number + 1 < len(records) else None
            joins = following is not None and _same_message(record, following) and len(parts) < MAX_SLOTS
            if not joins:
                _add(writer, shared, record, _slots(parts, record, shared).encode())
                parts = []
    return written


def _same_message(record: Record, following: Record) -> bool:
    same = (record.epoch, record.sequence, record.antennas) == (following.epoch, following.sequence, following.antennas)
    return same and record.capture.centre_hz == following.capture.centre_hz


def _add(writer: RecordingWriter, shared: Shared, record: Record, payload: bytes) -> None:
    sent_ns, log_ns = _times(record)
    if not writer.add(shared.flow, record.epoch, record.sequence, sent_ns, log_ns, payload):
        fields = record.fields
        assert fields is not None  # else the numbers ascend
        raise fields.wrong("twinlink:sequence", "a number that no other record has, but slots of one message in a row")


def _times(record: Record) -> tuple[int, int]:
    """When the message was sent, and received."""
    if record.fields is None:
        return record.observed_ns, record.observed_ns
    sent_ns = record.fields.integer("twinlink:sent_ns", default=record.observed_ns)
    return sent_ns, record.fields.integer("twinlink:log_ns", default=sent_ns)


def _samples(fd: int, record: Record, shared: Shared) -> NDArray[Any]:
    """Shape ``(antennas, symbols, subcarriers, 2)``."""
    octets = os.pread(fd, shared.size(record.antennas) * shared.sample_octets, record.start * shared.sample_octets)
    dtype = "<f4" if shared.datatype == CF32 else "<i2"
    if len(octets) != shared.size(record.antennas) * shared.sample_octets:
        raise NotReadable(
            f"{shared.where}: its data file has become shorter: it ends within the record at sample {record.start}"
        )
    return np.frombuffer(octets, dtype).reshape(record.antennas, shared.symbols.bit_count(), shared.bins, 2)


def _spectrum(values: NDArray[Any], record: Record, shared: Shared) -> Spectrum:
    fields, e3 = record.fields, {}
    if fields is not None and "twinlink:e3" in fields:
        named = fields.object("twinlink:e3")
        e3 = {str(key)[:64]: named.integer(key, -(2**63) + 1) for key in list(fields.raw("twinlink:e3"))[:64]}
    symbol = fields.integer("twinlink:symbol") if fields is not None and "twinlink:symbol" in fields else None
    return Spectrum(
        samples=values[0, 0].astype(np.int16),
        n_prbs=shared.n_prbs,
        scs_hz=shared.scs_hz,
        centre_hz=record.capture.centre_hz,
        observed_ns=record.observed_ns,
        symbol=symbol,
        fft_size=shared.fft_size,
        e3=e3,
    )


def _slot(values: NDArray[Any], record: Record, shared: Shared, written: _Written) -> Slot:
    fields = record.fields or Fields("", {})
    mask = fields.integer("dapp:valid_symbol_mask", 0, 0xFFFF, shared.symbols) & shared.symbols or shared.symbols
    numbers = [symbol for symbol in range(SYMBOLS) if shared.symbols >> symbol & 1]
    values = values[:, [row for row, symbol in enumerate(numbers) if mask >> symbol & 1]]
    data: NDArray[Any] = values
    if shared.datatype == CF32:
        form = fields.text("twinlink:format", "")
        whole = (values == np.rint(values)).all() and np.abs(values, dtype=np.float32).max() <= 32767
        if whole and form != "float16":
            data = values.astype(np.int16)
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                data = (values * np.float32(shared.beta)).astype(np.float16)
                again = data.astype(np.float32) / np.float32(shared.beta)
            written.inexact += int(np.count_nonzero(again.view(np.uint32) != values.view(np.uint32)))
    return Slot(
        data=data,
        sfn=fields.integer("twinlink:sfn", 0, 65535, 0),
        slot=fields.integer("twinlink:slot", 0, 65535, 0),
        symbols=mask,
        observed_ns=record.observed_ns,
        gnb_ns=fields.integer("twinlink:gnb_ns", 0, MAX_TIME_NS, 0),
        clock=Clock(fields.integer("twinlink:clock", 0, 3, 0)),
        missing=fields.integer("twinlink:missing", 0, 2**32 - 1, 0),
    )


def _slots(parts: list[Slot], record: Record, shared: Shared) -> SlotSpectrum:
    return SlotSpectrum(
        n_prbs_carrier=shared.n_prbs_carrier,
        first_prb=shared.first_prb,
        n_prbs=shared.n_prbs,
        antennas=shared.antennas[: record.antennas],
        scs_hz=shared.scs_hz,
        centre_hz=record.capture.centre_hz,
        beta=shared.beta,
        every=shared.every,
        slots=tuple(parts),
    )


def _sensing(record: Record) -> SensingRanges | None:
    """What the MAC left free in a slot, as the dApp framework notes it."""
    assert record.fields is not None
    if not record.fields.raw("dapp:sensing_ranges"):
        return None
    ranges = []
    for one in record.fields.objects("dapp:sensing_ranges")[:MAX_RANGES]:
        names = ("start_symbol", 255), ("num_symbols", 255), ("rb_start", 65535), ("rb_size", 65535)
        ranges.append(FreeRange(*(one.integer(name, 0, most) for name, most in names)))
    return SensingRanges(0, 0, tuple(ranges), record.observed_ns)
