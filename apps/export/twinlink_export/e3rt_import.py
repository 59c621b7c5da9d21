"""An E3RT trace into a recording: each slot is a message of flow ``spectrum``, of a node for each cell."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from twinlink.recording.writer import RecordingWriter
from twinlink.slots import ALL_SYMBOLS, MAX_TIME_NS, Clock, Slot, SlotSpectrum

from .checked import NotReadable
from .e3rt import (
    ANTENNAS,
    CELL,
    FILE_HEAD,
    MAGIC,
    MAX_BODY_OCTETS,
    PART,
    PRBS,
    PUSCH,
    RECORD_HEAD,
    ROW_OCTETS,
    SHAPE,
    SLOT,
    SRS,
    UE_OCTETS,
    VERSION,
)
from .imported import Imported, Radio, digest, series_of

FLOW = "spectrum"


class _Found(NamedTuple):
    """A PUSCH record; ``row``: None where it has no I/Q."""

    time_ns: int
    tai_ns: int
    sfn: int
    slot: int
    cell: int
    antennas: int
    ues: int
    estimates: int
    row: bytes | None


def import_file(path: Path, out: Path, radio: Radio, overwrite: bool) -> Imported:
    """Write a recording.  Raises OSError, NotReadable."""
    sources = [digest(path)]
    series = series_of(sources)
    with path.open("rb") as file:
        cells = {found.cell for found in _read(path, file, Counter(), with_rows=False)}
        epochs = {cell: _epoch(series, cell) for cell in cells}
        nodes = {epoch: f"{CELL}{cell}" for cell, epoch in epochs.items()}
        left_out: Counter[str] = Counter()
        numbers: Counter[int] = Counter()
        imported = {"format": "e3rt", "files": sources, "left_out": left_out}
        with RecordingWriter(out, imported, series, nodes, overwrite) as writer:
            for found in _read(path, file, left_out, with_rows=True):
                left_out["UEs"] += found.ues
                left_out["channel estimates"] += found.estimates > 0
                if found.row is None:
                    left_out["slots without I/Q"] += 1
                    continue
                epoch, time_ns = epochs[found.cell], found.time_ns
                payload = _message(found, radio, left_out).encode()
                writer.add(FLOW, epoch, numbers[epoch], time_ns, time_ns, payload)
                numbers[epoch] += 1
    notes = [f"left out: {', '.join(f'{count:,} {what}' for what, count in left_out.items() if count)}"]
    return Imported(numbers.total(), "slots", notes if any(left_out.values()) else [])


def _epoch(series: str, cell: int) -> int:
    return (int(series, 16) & ~0xFFFFF) | (1 << 16) | cell


def _message(found: _Found, radio: Radio, left_out: Counter[str]) -> SlotSpectrum:
    assert found.row is not None
    row = np.frombuffer(found.row, "<f2").reshape(SHAPE)
    if (
        found.row.count(0, found.antennas * ROW_OCTETS // ANTENNAS)
        < (ANTENNAS - found.antennas) * ROW_OCTETS // ANTENNAS
    ):
        left_out["slots with I/Q of antennas beyond their number"] += 1
    slot = Slot(
        data=row[: found.antennas],
        sfn=found.sfn,
        slot=found.slot,
        symbols=ALL_SYMBOLS,
        observed_ns=found.time_ns,
        gnb_ns=found.tai_ns,
        clock=Clock.TAI,
    )
    antennas = tuple(range(found.antennas))
    return SlotSpectrum(PRBS, 0, PRBS, antennas, radio.scs_hz, radio.centre_hz, radio.beta, slots=(slot,))


def _read(path: Path, file: IO[bytes], left_out: Counter[str], *, with_rows: bool) -> Iterator[_Found]:
    """The PUSCH records.  Raises NotReadable."""
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    head = file.read(FILE_HEAD.size)
    if len(head) < FILE_HEAD.size or not head.startswith(MAGIC):
        raise NotReadable(f"{path} is no E3RT trace: it does not begin as one")
    _, version, layout, _ = FILE_HEAD.unpack(head)
    if (version, layout) != (VERSION, VERSION):
        raise NotReadable(f"{path}: version {version:#x} with layout {layout:#x} is not known here, but {VERSION:#x}")
    at, last_ns = FILE_HEAD.size, 0
    while at < size:
        where = f"{path}, octet {at}"
        file.seek(at)
        head = file.read(RECORD_HEAD.size)
        if len(head) < RECORD_HEAD.size:
            raise NotReadable(f"{where}: the trace ends within the head of a record")
        tag, _, length = RECORD_HEAD.unpack(head)
        if length > min(size - at - RECORD_HEAD.size, MAX_BODY_OCTETS):
            raise NotReadable(f"{where}: a record of {length} octets does not end within the trace")
        if tag == PUSCH:
            found = _pusch(where, file, length, with_rows)
            if found.tai_ns < last_ns:
                raise NotReadable(f"{where}: its TAI time {found.tai_ns} is earlier than that of the record before")
            last_ns = found.tai_ns
            yield found
        elif tag == SRS:
            left_out["SRS records"] += 1
        else:
            raise NotReadable(f"{where}: tag {tag} is neither PUSCH (1) nor SRS (2)")
        at += RECORD_HEAD.size + length


def _pusch(where: str, file: IO[bytes], length: int, with_rows: bool) -> _Found:
    left = length - SLOT.size
    if left < 0:
        raise NotReadable(f"{where}: a PUSCH record of {length} octets is too short")
    time_ns, tai_ns, sfn, slot, cell, antennas, _, _, _, ues = SLOT.unpack(file.read(SLOT.size))
    left -= ues * UE_OCTETS + PART.size
    if left < 0:
        raise NotReadable(f"{where}: {ues} UEs do not fit into its {length} octets")
    file.seek(ues * UE_OCTETS, os.SEEK_CUR)
    (octets,) = PART.unpack(file.read(PART.size))
    if octets not in (0, ROW_OCTETS) or octets + PART.size > left:
        raise NotReadable(f"{where}: I/Q of {octets} octets: {ROW_OCTETS} are expected, within the record's {length}")
    row = None
    if octets:
        if not 0 < antennas <= ANTENNAS:
            raise NotReadable(f"{where}: {antennas} antennas; a row of I/Q has {ANTENNAS}")
        if max(time_ns, tai_ns) > MAX_TIME_NS:
            raise NotReadable(f"{where}: times of {time_ns} and {tai_ns} ns")
        row = file.read(octets) if with_rows else b""
        file.seek(0 if with_rows else octets, os.SEEK_CUR)
    (estimates,) = PART.unpack(file.read(PART.size))
    if estimates != left - octets - PART.size:
        raise NotReadable(f"{where}: channel estimates of {estimates} octets do not end with the record")
    return _Found(time_ns, tai_ns, sfn, slot, cell, antennas, ues, estimates, row)
