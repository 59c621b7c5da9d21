"""Records of a SigMF file: where they are in the data, when they were observed, and what is missing between them.

A record is an OFDM symbol, or a slot: antenna, symbol, subcarrier.  Nothing that the metadata says of the data is
believed before it is compared with the file.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from twinlink.control import MAX_PRBS
from twinlink.protocol.frames import FLOW_NAME, MAX_SEQUENCE
from twinlink.protocol.rangeset import RangeSet
from twinlink.slots import ALL_SYMBOLS, MAX_ANTENNAS, MAX_TIME_NS, SYMBOLS
from twinlink.spectrum import SUBCARRIERS_PER_PRB

from .checked import Fields, NotReadable
from .decisions import Label
from .imported import Radio
from .sigmf_meta import CF32, CI16, RECORD_LABELS, SLOTS, SYMBOL, from_datetime

PERIOD_MS = 10.0  # between the records where nothing says it; a gNB captures a symbol a frame
MAX_HZ = 1e12
MAX_SESSIONS = 1024
_KNOWN = ("dapp", "twinlink")  # extensions


@dataclass(slots=True)
class Shared:
    """What holds for all records.

    Attributes:
        where: the metadata file.
        is_symbols: each record becomes a `Spectrum`, else a slot of a `SlotSpectrum`.
        symbols: mask of the symbols that the records have.
    """

    where: str
    datatype: str
    flow: str
    node: str
    is_symbols: bool
    n_prbs: int
    first_prb: int
    n_prbs_carrier: int
    antennas: tuple[int, ...]
    symbols: int
    scs_hz: int
    beta: float
    every: int
    fft_size: int | None
    period_ns: int
    offset: int

    @property
    def bins(self) -> int:
        """Subcarriers."""
        return self.n_prbs * SUBCARRIERS_PER_PRB

    @property
    def sample_octets(self) -> int:
        """I and Q together."""
        return 8 if self.datatype == CF32 else 4

    def size(self, antennas: int) -> int:
        """Samples of a record."""
        return antennas * self.symbols.bit_count() * self.bins


class Capture(NamedTuple):
    """A segment: its first sample, the carrier centre, and the time and session of its first record, if it says so."""

    start: int
    centre_hz: float
    time_ns: int | None
    epoch: int | None
    place: int  # of the first sample in the original stream


@dataclass(slots=True)
class Record:
    """A record that is to be read.

    Attributes:
        start: its first sample in the data.
        fields: its annotation; None: it has none.
    """

    start: int
    antennas: int
    observed_ns: int
    capture: Capture
    fields: Fields | None
    epoch: int = 0
    sequence: int = 0


@dataclass(slots=True)
class _Sequences:
    """Numbers for records that have none; of each epoch those that are said to be missing."""

    next: int = 0
    missing: RangeSet = field(default_factory=RangeSet)


def read_shared(where: str, general: Fields, radio: Radio) -> Shared:
    """What ``global`` says.  Raises NotReadable."""
    _check_form(general)
    datatype, n_prbs = general.text("core:datatype"), general.integer("dapp:n_prbs", 1, MAX_PRBS)
    n_ants = general.integer("dapp:n_ants", 1, MAX_ANTENNAS, 1)
    n_symbols = general.integer("dapp:n_symbols", 1, SYMBOLS, 1)
    symbols = general.integer("twinlink:symbols", 1, ALL_SYMBOLS, (1 << n_symbols) - 1)
    if symbols.bit_count() != n_symbols:
        raise general.wrong("twinlink:symbols", f"a mask of {n_symbols} symbols")
    kind = general.text("twinlink:records", SYMBOL if (datatype, n_ants, n_symbols) == (CI16, 1, 1) else SLOTS)
    if kind not in RECORD_LABELS or (kind == SYMBOL and (datatype, n_ants, n_symbols) != (CI16, 1, 1)):
        raise general.wrong("twinlink:records", f"{SLOTS}, or for one antenna and symbol of {CI16} {SYMBOL}")
    flow = general.text("twinlink:flow", "spectrum")
    if not FLOW_NAME.fullmatch(flow):
        raise general.wrong("twinlink:flow", "the name of a flow")
    first_prb = general.integer("twinlink:first_prb", 0, MAX_PRBS, 0)
    n_prbs_carrier = general.integer("twinlink:n_prbs_carrier", 1, MAX_PRBS, first_prb + n_prbs)
    if first_prb + n_prbs > n_prbs_carrier:
        raise general.wrong("twinlink:n_prbs_carrier", f"at least {first_prb + n_prbs}, the PRBs of the records")
    scs_hz = general.number("dapp:subcarrier_spacing_khz", 1, 960) * 1000
    return Shared(
        where=where,
        datatype=datatype,
        flow=flow,
        node=general.text("twinlink:node", "imported", 255),
        is_symbols=kind == SYMBOL,
        n_prbs=n_prbs,
        first_prb=first_prb,
        n_prbs_carrier=n_prbs_carrier,
        antennas=_antennas(general, n_ants),
        symbols=symbols,
        scs_hz=round(scs_hz),
        beta=general.number("twinlink:beta", 2.0**-24, 65504, radio.beta),
        every=general.integer("twinlink:every", 1, 65535, 1),
        fft_size=general.integer("twinlink:fft_size") if "twinlink:fft_size" in general else None,
        period_ns=round(general.number("twinlink:record_period_ms", 1e-3, 1e6, PERIOD_MS) * 1e6),
        offset=general.integer("core:offset", default=0),
    )


def _check_form(general: Fields) -> None:
    """The samples are of a form that is known here."""
    if general.text("core:datatype") not in (CF32, CI16):
        raise general.wrong("core:datatype", f"{CF32} or {CI16}")
    for key, allowed in (("core:num_channels", 1), ("core:trailing_bytes", 0)):
        if general.integer(key, default=allowed) != allowed:
            raise general.wrong(key, str(allowed))
    if general.raw("core:metadata_only"):
        raise general.wrong("core:metadata_only", "false: without data there is nothing to import")
    for extension in general.objects("core:extensions"):
        if extension.raw("optional") is not True and extension.text("name") not in _KNOWN:
            raise extension.wrong("name", f"one that is known here: {', '.join(_KNOWN)}")
    if general.text("dapp:domain") != "frequency":
        raise general.wrong("dapp:domain", "'frequency': samples in time are not imported")
    if general.integer("dapp:n_sc_per_prb", default=SUBCARRIERS_PER_PRB) != SUBCARRIERS_PER_PRB:
        raise general.wrong("dapp:n_sc_per_prb", "12")


def _antennas(general: Fields, count: int) -> tuple[int, ...]:
    found = general.raw("twinlink:antennas")
    if found is None:
        return tuple(range(count))
    numbers = isinstance(found, list) and all(type(one) is int and 0 <= one < MAX_ANTENNAS for one in found)
    if numbers and len(found) == count and sorted(set(found)) == found:
        return tuple(found)
    raise general.wrong("twinlink:antennas", f"{count} numbers below {MAX_ANTENNAS}, ascending")


def read_captures(captures: list[Fields], shared: Shared, count: int) -> list[Capture]:
    """The segments of so many samples.  Raises NotReadable."""
    found: list[Capture] = []
    shift = shared.first_prb + shared.n_prbs / 2 - shared.n_prbs_carrier / 2
    for capture in captures:
        start = capture.integer("core:sample_start") - shared.offset
        if not 0 <= start < count or (found and start <= found[-1].start):
            raise capture.wrong("core:sample_start", f"one of the {count} samples, behind that of the capture before")
        if capture.integer("core:header_bytes", default=0):
            raise capture.wrong("core:header_bytes", "0")
        centre_hz = capture.number("core:frequency", -MAX_HZ, MAX_HZ, 0.0)
        centre_hz -= shift * SUBCARRIERS_PER_PRB * shared.scs_hz
        time_ns = None
        if "core:datetime" in capture:
            try:
                time_ns = from_datetime(capture.text("core:datetime"))
            except ValueError as error:
                raise NotReadable(f"{capture.where}.core:datetime: {error}") from None
        epoch = _epoch(capture, "twinlink:epoch") if "twinlink:epoch" in capture else None
        centre_hz = capture.number("twinlink:centre_hz", -MAX_HZ, MAX_HZ, centre_hz)
        place = capture.integer("core:global_index", default=start + shared.offset)
        found.append(Capture(start, centre_hz, time_ns, epoch, place))
    if not found or found[0].start:
        raise NotReadable(f"{shared.where}: captures: none begins with the first sample")
    return found


def _epoch(fields: Fields, key: str) -> int:
    try:
        epoch = int(fields.text(key), 16)
    except ValueError:
        epoch = 0
    if not 0 < epoch < 2**64:
        raise fields.wrong(key, "16 hexadecimal digits")
    return epoch


def read_records(
    annotations: list[Fields], captures: list[Capture], shared: Shared, count: int
) -> tuple[list[Record], str]:
    """The records, and where their times are from: ``recorded``, ``datetime`` or ``none``."""
    label = RECORD_LABELS[SYMBOL if shared.is_symbols else SLOTS]
    records: list[Record] = []
    starts = [capture.start for capture in captures]
    times, end = "recorded", 0
    for fields in annotations:
        if fields.raw("core:label") != label:
            continue
        antennas = fields.integer("dapp:n_ants", 1, len(shared.antennas), len(shared.antennas))
        start = fields.integer("core:sample_start") - shared.offset
        if start < end or start + shared.size(antennas) > count:
            raise fields.wrong(
                "core:sample_start", f"where {shared.size(antennas)} of the {count} samples begin behind those before"
            )
        end = start + shared.size(antennas)
        capture = captures[bisect_right(starts, start) - 1]
        observed_ns = fields.integer("dapp:timestamp_ns", 0, MAX_TIME_NS, _time(capture, start, shared))
        times = times if "dapp:timestamp_ns" in fields else "datetime"
        records.append(Record(start, antennas, observed_ns, capture, fields))
    if not records:
        times = "datetime"
        size = shared.size(len(shared.antennas))
        if count % size:
            raise NotReadable(
                f"{shared.where}: the data has {count} samples, which are no records of {size}: antennas x "
                "symbols x subcarriers of global"
            )
        for start in range(0, count, size):
            capture = captures[bisect_right(starts, start) - 1]
            if (start - capture.start) % size:
                raise NotReadable(
                    f"{shared.where}: a capture begins at sample {capture.start + shared.offset}, within a record"
                )
            observed_ns = min(_time(capture, start, shared), MAX_TIME_NS)
            records.append(Record(start, len(shared.antennas), observed_ns, capture, None))
    if times == "datetime" and any(capture.time_ns is None for capture in captures):
        times = "none"
    return records, times


def _time(capture: Capture, start: int, shared: Shared) -> int:
    number = (start - capture.start) // shared.size(len(shared.antennas))
    if capture.time_ns is None:
        number = start // shared.size(len(shared.antennas))
    return max(capture.time_ns or 0, 0) + number * shared.period_ns


def number_records(records: list[Record], shared: Shared, own: int, general: Fields) -> dict[int, RangeSet]:
    """Give each record its session and number; returns the numbers that are missing, by session."""
    lines: dict[int, _Sequences] = {}
    before: Capture | None = None
    size = shared.size(len(shared.antennas))
    for record in records:
        fields, capture = record.fields, record.capture
        record.epoch = capture.epoch or own
        line = lines.setdefault(record.epoch, _Sequences())
        if len(lines) > MAX_SESSIONS:
            raise NotReadable(f"{shared.where}: captures have more than {MAX_SESSIONS} different twinlink:epoch")
        if before is not None and capture is not before:
            skipped = (capture.place - before.place - (capture.start - before.start)) // size
            if skipped > 0 and line.next + skipped < MAX_SEQUENCE:
                line.missing.add(line.next, line.next + skipped)
                line.next += skipped
        before = capture
        record.sequence = line.next
        if fields is not None and "twinlink:sequence" in fields:
            record.sequence = fields.integer("twinlink:sequence", 0, MAX_SEQUENCE)
        line.next = record.sequence + 1
    for one in general.objects("twinlink:missing"):
        if (epoch := _epoch(one, "epoch")) in lines:
            for first, end in _ranges(one, one.raw("ranges")):
                lines[epoch].missing.add(first, end)
    for record in records:
        lines[record.epoch].missing.take(record.sequence, record.sequence + 1)
    return {epoch: line.missing for epoch, line in lines.items() if line.missing}


def _ranges(fields: Fields, ranges: Any) -> Iterator[tuple[int, int]]:
    for pair_ in ranges if isinstance(ranges, list) else [None]:
        if not (isinstance(pair_, list) and len(pair_) == 2 and all(type(number) is int for number in pair_)):
            raise fields.wrong("ranges", "a list of pairs [first, end]")
        first, end = pair_
        if not 0 <= first < end <= MAX_SEQUENCE:
            raise fields.wrong("ranges", "a list of pairs [first, end]")
        yield first, end


class LabelAt(NamedTuple):
    """A label, and the number of the first record that it is of."""

    record: int
    label: Label


def read_labels(annotations: list[Fields], records: list[Record], shared: Shared) -> list[LabelAt]:
    """The annotations that are no records: what is known of some PRBs for some time, by the first record."""
    starts, found = [record.start for record in records], []
    for fields in annotations:
        label = fields.raw("core:label")
        if not isinstance(label, str) or label in RECORD_LABELS.values():
            continue
        start = fields.integer("core:sample_start") - shared.offset
        end = start + fields.integer("core:sample_count", default=2**62)
        first, last = max(bisect_right(starts, start) - 1, 0), bisect_right(starts, max(end - 1, start)) - 1
        if last < first:
            continue
        edge_hz = records[first].capture.centre_hz - shared.n_prbs_carrier / 2 * SUBCARRIERS_PER_PRB * shared.scs_hz
        prb_hz = SUBCARRIERS_PER_PRB * shared.scs_hz
        edges = []
        for key, default in (("core:freq_lower_edge", 0), ("core:freq_upper_edge", shared.n_prbs_carrier)):
            value = default
            if key in fields:  # some writers put the edge on the centre of a subcarrier, half a one off
                value = round((fields.number(key, -MAX_HZ, MAX_HZ) - edge_hz) / prb_hz)
            edges.append(min(max(value, 0), shared.n_prbs_carrier))
        if edges[0] < edges[1]:
            first_ns = records[first].observed_ns
            last_ns = max(records[last].observed_ns, first_ns)
            made = Label(label[:1024], first_ns, last_ns, edges[0], edges[1], fields.text("core:comment", ""))
            found.append(LabelAt(first, made))
    return sorted(found, key=lambda one: one.record)
