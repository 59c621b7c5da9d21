"""The arrays of a recording as an ``.npz``, without pickles (docs/export.md).

The arrays of a flow that have one type and shape are stacked.  They are gathered in files without a name: memory holds
only the columns beside them, some 50 octets a message.
"""

import zipfile
from array import array
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from twinlink import npy
from twinlink.appkit import outputs
from twinlink.errors import ConfigurationError, MalformedPayload
from twinlink.process.files import scratch, whole
from twinlink.slots import Content, SlotSpectrum
from twinlink.spectrum import Spectrum
from twinlink.text_payload import is_array

from .in_order import in_order
from .request import Outcome, Request
from .source import MAX_NS, Message, Source, wants
from .spectra import spectrum_of

MAX_STACKS = 256  # each has an open file
_STEP, _ROWS = 1024 * 1024, 65_536
_EPOCH_1980 = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file has: the same arrays are the same octets
_header: Any = npy_format  # its functions are not annotated

Array = np.ndarray[Any, np.dtype[Any]]


class _Item(NamedTuple):
    """An array of a message: of a slot or symbol, with the time of observation."""

    values: Array
    observed_ns: int | None = None


class _Stack:
    """The arrays of one type and shape of a flow."""

    def __init__(self, stack: ExitStack, path: Path, name: str, like: _Item) -> None:
        self.name, self.count = name, 0
        self._dtype, self._shape = like.values.dtype, like.values.shape
        self._observed = like.observed_ns is not None
        self._file: IO[bytes] = stack.enter_context(scratch(path))
        self._columns = {
            name: array("Q" if name == "epoch" else "q")
            for name in ("sequence", "epoch", "sent_ns", "received_ns", "observed_ns")
        }

    def add(self, message: Message, item: _Item) -> None:
        self._file.write(
            np.ascontiguousarray(item.values).reshape(-1).view(np.uint8).data if item.values.nbytes else b""
        )
        self.count += 1
        received_ns = -1 if message.received_ns is None else message.received_ns
        values = message.sequence, message.epoch, message.sent_ns, received_ns, item.observed_ns or 0
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value if column.typecode == "Q" else min(value, MAX_NS))

    def write(self, archive: zipfile.ZipFile, source: Source) -> None:
        self._file.seek(0)
        with _member(archive, f"{self.name}.array", self._dtype, (self.count, *self._shape)) as member:
            while part := self._file.read(_STEP):
                member.write(part)
        for name, column in self._columns.items():
            if name != "observed_ns" or self._observed:
                _write(archive, f"{self.name}.{name}", np.frombuffer(column, column.typecode))
        epochs = self._columns["epoch"]
        names = {epoch: source.node(epoch) for epoch in set(epochs)}
        dtype = np.dtype(f"<U{max(map(len, names.values()))}")
        with _member(archive, f"{self.name}.node", dtype, (len(epochs),)) as member:
            for at in range(0, len(epochs), _ROWS):
                member.write(np.array([names[epoch] for epoch in epochs[at : at + _ROWS]], dtype).tobytes())


def _member(archive: zipfile.ZipFile, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> IO[bytes]:
    """A member of the archive, behind its header of .npy."""
    member = archive.open(zipfile.ZipInfo(f"{name}.npy", _EPOCH_1980), "w", force_zip64=True)
    descr = {"descr": _header.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    _header.write_array_header_1_0(member, descr)
    return member


def _write(archive: zipfile.ZipFile, name: str, values: Array) -> None:
    with _member(archive, name, values.dtype, values.shape) as member:
        member.write(np.ascontiguousarray(values).data.cast("B") if values.nbytes else b"")


def export(request: Request) -> Outcome:
    """Write the arrays.  Raises ConfigurationError where there is none."""
    outputs.refuse_existing("--out", [request.out], request.overwrite)
    source = Source(request.files)
    problems, malformed, problem = list(source.problems), 0, ""
    with ExitStack() as stack, whole(request.out) as part:
        stacks: dict[tuple[str, np.dtype[Any], tuple[int, ...], bool], _Stack] = {}
        of_flow: dict[str, int] = {}
        wanted = (message for message in source.messages() if wants(message.flow, request.flows))
        for message in in_order(wanted, source.recorded):
            try:
                items = _arrays_of(message)
            except MalformedPayload as error:
                malformed += 1
                problem = problem or f"message {message.sequence} of flow {message.flow}: {error}"
                continue
            for item in items:
                key = message.flow, item.values.dtype, item.values.shape, item.observed_ns is None
                if key not in stacks:
                    if len(stacks) >= MAX_STACKS:
                        raise ConfigurationError(
                            f"the arrays have more than {MAX_STACKS} types and shapes: choose with --flows"
                        )
                    number = of_flow[message.flow] = of_flow.get(message.flow, -1) + 1
                    name = f"{message.flow}~{number}" if number else message.flow
                    stacks[key] = _Stack(stack, request.out, name, item)
                stacks[key].add(message, item)
        if not stacks:
            raise ConfigurationError(f"{source.reports[0].path} has no arrays on flows {','.join(request.flows)}")
        with zipfile.ZipFile(part, "w", allowZip64=True) as archive:
            for one in stacks.values():
                one.write(archive, source)
    if malformed:
        problems.append(f"{malformed} messages cannot be read as arrays; the first: {problem}")
    return Outcome({request.out: sum(one.count for one in stacks.values())}, "arrays", problems, source.notes)


def _arrays_of(message: Message) -> list[_Item]:
    """The arrays of a message: one of `send_array`, a symbol's I/Q, or I/Q or power of each slot.

    Raises MalformedPayload.
    """
    payload = message.payload
    if is_array(payload):
        values = npy.decode(payload)
        return [_Item(values)]
    found = spectrum_of(message.flow, payload)
    if isinstance(found, Spectrum):
        return [_Item(_complex(found.samples.astype(np.float32)), found.observed_ns)]
    if isinstance(found, SlotSpectrum):
        iq = found.content is Content.IQ
        return [
            _Item(_complex(found.in_lsb(slot)) if iq else found.power(slot), slot.observed_ns) for slot in found.slots
        ]
    return []


def _complex(values: Array) -> Array:
    """I and Q of the last axis as complex64."""
    return np.ascontiguousarray(values, np.float32).view(np.complex64)[..., 0]
