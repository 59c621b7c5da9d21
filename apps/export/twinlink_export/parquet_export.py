"""A recording as a table of Parquet: a row a message, or a row a PRB and OFDM symbol (docs/export.md)."""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinlink.appkit import outputs
from twinlink.errors import ConfigurationError, MalformedPayload, TwinlinkError
from twinlink.process.files import whole
from twinlink.slots import SYMBOLS, Content, SlotSpectrum, power_per_prb
from twinlink.spectrum import Spectrum

from .decisions import Decisions
from .in_order import in_order
from .request import Outcome, Request
from .source import MAX_NS, Lost, Message, Source, Stream, wants
from .spectra import spectrum_of

BATCH_ROWS = 262_144  # that are held before they are written
MAX_MISSING_ROWS = 50_000_000  # of messages that are not there: a manifest may claim any number

# Columns by table: name, and type of Arrow; "name" is text that repeats, "time" Unix time in ns: as an integer, pandas
# would make a float of it where there are nulls, which has no room for it.
MESSAGES = {
    "flow": "name", "direction": "name", "epoch": "name", "node": "name", "sequence": "int64", "sent_ns": "time",
    "received_ns": "time", "octets": "int64", "delay_ns": "int64", "clock_offset_ns": "int64",
    "clock_bound_ns": "int64", "retransmitted": "bool", "lost": "bool", "reason": "name",
}  # fmt: skip
PRBS = {
    "time_ns": "time", "flow": "name", "epoch": "name", "node": "name", "sequence": "int64", "sfn": "int32",
    "slot": "int32", "antenna": "int16", "symbol": "int16", "prb": "int16", "power": "float32", "truth": "name",
    "detected": "bool", "blocked": "bool",
}  # fmt: skip


class ParquetMissing(TwinlinkError, ImportError):
    """pyarrow, which writes Parquet, is not installed."""


def _arrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ParquetMissing(
            f"pyarrow, which writes Parquet, cannot be loaded ({error}): pip install 'twinlink[parquet]'"
        ) from None
    return pyarrow, pyarrow.parquet


class _Table:
    """A file of Parquet, written batch by batch: a row group each.

    Attributes:
        rows: that were added.
    """

    def __init__(self, stack: ExitStack, path: Path, columns: dict[str, str]) -> None:
        arrow, parquet = _arrow()
        self.rows = 0
        self._columns, self._arrow = columns, arrow
        kinds = {
            "name": arrow.dictionary(arrow.int32(), arrow.string()),
            "bool": arrow.bool_(),
            "time": arrow.timestamp("ns", "UTC"),
        }
        self._schema = arrow.schema(
            [(name, kinds[kind] if kind in kinds else getattr(arrow, kind)()) for name, kind in columns.items()]
        )
        part = stack.enter_context(whole(path))
        self._writer = stack.enter_context(parquet.ParquetWriter(part, self._schema, compression="zstd"))
        self._batches: list[Any] = []
        self._held = 0

    def add(self, values: dict[str, Any], rows: int) -> None:
        """Add rows: of each column a list, an array, or one value that all rows have (None: of no row)."""
        arrays = [
            self._array(values.get(name), field.type, rows)
            for name, field in zip(self._columns, self._schema, strict=True)
        ]
        self._batches.append(self._arrow.record_batch(arrays, schema=self._schema))
        self._held += rows
        self.rows += rows
        if self._held >= BATCH_ROWS:
            self.flush()

    def _array(self, value: Any, kind: Any, rows: int) -> Any:
        arrow = self._arrow
        if isinstance(value, list | np.ndarray):
            return arrow.array(value, kind)
        if value is None:
            return arrow.nulls(rows, kind)
        if arrow.types.is_dictionary(kind):
            return arrow.DictionaryArray.from_arrays(arrow.array(np.zeros(rows, np.int32)), arrow.array([value]))
        return arrow.repeat(arrow.scalar(value, kind), rows)

    def flush(self) -> None:
        if self._batches:
            table = self._arrow.Table.from_batches(self._batches).combine_chunks().unify_dictionaries()
            self._writer.write_table(table)
            self._batches, self._held = [], 0


def export(request: Request) -> Outcome:
    """Write a table.  Raises ParquetMissing."""
    _arrow()
    outputs.refuse_existing("--out", [request.out], request.overwrite)
    source = Source(request.files)
    problems = list(source.problems)
    with ExitStack() as stack:
        table = _Table(stack, request.out, MESSAGES if request.table == "messages" else PRBS)
        if request.table == "messages":
            _write_messages(source, request, table)
        else:
            problems += _write_prbs(source, request, table)
        table.flush()
    return Outcome({request.out: table.rows}, "rows", problems, source.notes)


# Messages


class _Rows:
    """Rows of messages, gathered for a batch."""

    def __init__(self, table: _Table) -> None:
        self._table = table
        self._columns: dict[str, list[Any]] = {name: [] for name in MESSAGES}
        self._lists = list(self._columns.values())

    def add(self, *row: Any) -> None:
        """Add a row, in the order of `MESSAGES`."""
        for column, value in zip(self._lists, row, strict=True):
            column.append(value)
        if len(self._lists[0]) >= BATCH_ROWS // 4:
            self.flush()

    def flush(self) -> None:
        if count := len(self._lists[0]):
            self._table.add(self._columns, count)
            for column in self._lists:
                column.clear()


def _write_messages(source: Source, request: Request, table: _Table) -> None:
    count = sum(missing.ranges.count() for missing in source.missing if wants(missing.stream[1], request.flows))
    if count > MAX_MISSING_ROWS:
        raise ConfigurationError(
            f"{source.reports[0].path}: its manifest names {count:,} missing messages, of which at most "
            f"{MAX_MISSING_ROWS:,} are written, a row each: choose with --flows"
        )
    rows, lost = _Rows(table), _Losses(source.lost)
    for number, messages in enumerate(source.files()):
        for message in messages:
            if wants(message.flow, request.flows):
                rows.add(*_row(message, lost))
        for missing in source.missing:
            if missing.file == number and wants(missing.stream[1], request.flows):
                direction, flow, epoch = missing.stream
                named = flow, direction, f"{epoch:016x}", source.node(epoch)
                for first, end in missing.ranges:
                    for sequence in range(first, end):
                        rows.add(*named, min(sequence, MAX_NS), *[None] * 6, None, True, missing.reason)
    rows.flush()


class _Losses:
    """Whether a message that was sent is lost to a peer, and why."""

    def __init__(self, lost: list[Lost]) -> None:
        self._ends: dict[Stream, list[int]] = {}
        self._lost: dict[Stream, list[Lost]] = {}
        for one in sorted(lost, key=lambda one: (one.first, one.end)):
            ends, of = self._ends.setdefault(one.stream, []), self._lost.setdefault(one.stream, [])
            first = max(one.first, ends[-1] if ends else 0)  # the same message may be lost to several
            if first < one.end:
                ends.append(one.end)
                of.append(one._replace(first=first))

    def reason(self, message: Message) -> str | None:
        """Why; None: it is not lost."""
        ends = self._ends.get(message.stream, [])
        place = bisect_right(ends, message.sequence)
        if place == len(ends):
            return None
        found = self._lost[message.stream][place]
        return found.reason if found.first <= message.sequence else None


def _row(message: Message, lost: _Losses) -> tuple[Any, ...]:
    sent_ns, received_ns = _time(message.sent_ns), _time(message.received_ns)
    delay_ns = None if sent_ns is None or received_ns is None else received_ns - sent_ns
    clock = message.clock if received_ns is not None else None
    reason = lost.reason(message)
    return (
        message.flow,
        message.direction,
        f"{message.epoch:016x}",
        message.node,
        message.sequence,
        sent_ns,
        received_ns,
        len(message.payload),
        delay_ns,
        clock and clock.offset_ns,
        clock and clock.bound_ns,
        message.retransmitted,
        reason is not None,
        reason,
    )


def _time(time_ns: int | None) -> int | None:
    return None if time_ns is None or time_ns > MAX_NS else time_ns


# PRBs


class _Powers(NamedTuple):
    """The power of each antenna, OFDM symbol and PRB of a record, and where it is from.

    Attributes:
        symbols: their numbers; None: it is not known, or the mean over them.
        power: LSB^2, shape ``(antennas, symbols, PRBs)``.
    """

    observed_ns: int
    sfn: int | None
    slot: int | None
    antennas: tuple[int, ...]
    symbols: tuple[int, ...] | None
    first_prb: int
    power: NDArray[np.float32]


def _powers(found: Spectrum | SlotSpectrum) -> Iterator[_Powers]:
    if isinstance(found, Spectrum):
        power = power_per_prb(found.samples.astype(np.float32)[np.newaxis, np.newaxis])
        number = None if found.symbol is None else (min(found.symbol, np.iinfo(np.int16).max),)
        yield _Powers(found.observed_ns, None, None, (0,), number, 0, power)
        return
    for slot in found.slots:
        symbols = tuple(symbol for symbol in range(SYMBOLS) if slot.symbols >> symbol & 1)
        yield _Powers(
            slot.observed_ns,
            slot.sfn,
            slot.slot,
            found.antennas,
            None if found.slot_mean else symbols,
            found.first_prb,
            found.power(slot),
        )


def _write_prbs(source: Source, request: Request, table: _Table) -> list[str]:
    decisions, malformed, problem = Decisions(), 0, ""
    wanted = (one for one in source.messages() if not decisions.take(one) and wants(one.flow, request.flows))
    for message in in_order(wanted, source.recorded):
        try:
            found = spectrum_of(message.flow, message.payload)
        except MalformedPayload as error:
            malformed += 1
            problem = problem or f"message {message.sequence} of flow {message.flow}: {error}"
            continue
        if found is not None and not (isinstance(found, SlotSpectrum) and _is_odd(found)):
            _add_powers(table, message, found, decisions)
    return [f"{malformed} messages cannot be read as spectrum; the first: {problem}"] if malformed else []


def _is_odd(found: SlotSpectrum) -> bool:
    """I/Q of which the mean over the symbols was taken is no power."""
    return found.slot_mean and found.content is Content.IQ


def _add_powers(table: _Table, message: Message, found: Spectrum | SlotSpectrum, decisions: Decisions) -> None:
    detected, blocked = decisions.detected(message.log_ns), decisions.blocked(message.epoch)
    for one in _powers(found):
        antennas, symbols, count = one.power.shape
        prbs = np.arange(one.first_prb, one.first_prb + count, dtype=np.int16)
        rows = one.power.size
        table.add(
            {
                "time_ns": one.observed_ns,
                "flow": message.flow,
                "epoch": f"{message.epoch:016x}",
                "node": message.node,
                "sequence": message.sequence,
                "sfn": one.sfn,
                "slot": one.slot,
                "antenna": np.repeat(np.array(one.antennas, np.int16), symbols * count),
                "symbol": None
                if one.symbols is None
                else np.tile(np.repeat(np.array(one.symbols, np.int16), count), antennas),
                "prb": np.tile(prbs, antennas * symbols),
                "power": one.power.reshape(-1),
                "truth": _truth(message.epoch, one, decisions),
                "detected": None if detected is None else _marks(prbs, detected, rows),
                "blocked": None if blocked is None else _marks(prbs, blocked, rows),
            },
            rows,
        )


def _marks(prbs: NDArray[np.int16], of: frozenset[int], rows: int) -> bool | NDArray[np.bool_]:
    """Whether the PRB of each row is one of these."""
    return np.tile(np.isin(prbs, list(of)), rows // len(prbs)) if of else False


def _truth(epoch: int, powers: _Powers, decisions: Decisions) -> list[str | None] | None:
    """What is labelled, of the PRB of each row: several labels with commas between them."""
    labels = decisions.labels(epoch, powers.observed_ns)
    if not labels:
        return None
    antennas, symbols, count = powers.power.shape
    found: list[set[str]] = [set() for _ in range(count)]
    for label in labels:
        first = max(label.first_prb - powers.first_prb, 0)
        for names in found[first : max(label.end_prb - powers.first_prb, 0)]:
            names.add(label.label)
    return [",".join(sorted(names)) or None for names in found] * (antennas * symbols)
