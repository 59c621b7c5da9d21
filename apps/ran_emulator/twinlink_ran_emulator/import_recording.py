"""Makes a recording for the emulator of one by the dApp library 0.3 (SigMF): ``--help`` says how.

That library writes whole slots: ``cf32_le``, antenna, symbol (14), 273 PRBs, in LSB, with zeros above the PRBs of the
carrier.  The emulator plays one symbol a record, so one symbol of one antenna is taken of each slot in which it is
uplink.  The annotations name each slot's antennas, uplink symbols, time, and the ranges that the MAC left free: where
they name some, all else counts as a UE's (label ``ue``).
"""

import argparse
import hashlib
import sys
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from twinlink_e3 import ALL_SYMBOLS, N_PRBS_MAX

from twinlink.appkit import convert, outputs
from twinlink.appkit.console import DONE, guarded
from twinlink.appkit.options import Parser
from twinlink.errors import ConfigurationError
from twinlink.spectrum import SUBCARRIERS_PER_PRB

from . import metadata, schema
from .captures import check_captures
from .container import refuse_container
from .schema import RecordingError
from .truth import Area, Grid

SYMBOLS = 14
SUBCARRIERS = N_PRBS_MAX * SUBCARRIERS_PER_PRB
_INTEGER = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_RANGE = ("start_symbol", "num_symbols", "rb_start", "rb_size")
_REQUIRED = ("core:datatype", "dapp:domain", "dapp:n_prbs", "dapp:n_symbols", "dapp:subcarrier_spacing_khz")


def _schema() -> dict[str, Any]:
    """The schema of a recording, changed for whole slots."""
    found = deepcopy(schema.SCHEMA)
    general = found["properties"]["global"]
    del general["properties"]["dapp:samples_per_slot"]
    general["properties"] |= {
        "core:datatype": {"const": "cf32_le", "description": "as dapps 0.3 writes whole slots"},
        "dapp:n_prbs": {"const": N_PRBS_MAX, "description": "as dapps 0.3 writes whole slots"},
        "dapp:n_symbols": {"const": SYMBOLS, "description": "as dapps 0.3 writes whole slots"},
        "dapp:n_ants": _INTEGER,  # each slot has its own
    }
    general["required"] = list(_REQUIRED)
    found["properties"]["captures"]["items"]["required"].append("core:frequency")
    found["properties"]["annotations"]["items"]["properties"] |= {
        "dapp:valid_symbol_mask": _INTEGER,
        "dapp:n_ants": _INTEGER,
        "dapp:timestamp_ns": _INTEGER,
        "dapp:sensing_ranges": {
            "type": ["array", "null"],
            "items": {"type": "object", "required": list(_RANGE), "properties": dict.fromkeys(_RANGE, _INTEGER)},
        },
    }
    return found


_SCHEMA = _schema()


@dataclass(frozen=True, slots=True)
class Imported:
    """What was taken.

    Attributes:
        samples: int16, shape ``(records, n_prbs * 12, 2)``.
        ue: bool, shape ``(records, n_prbs)``; None if the recording does not tell.
        period_ms: time between records.
        left_out: slots in which the symbol is not uplink, or without the antenna.
        inexact: values that are no int16: they were rounded or limited.
    """

    samples: NDArray[np.int16]
    ue: NDArray[np.bool_] | None
    period_ms: float
    scs_hz: float
    centre_hz: float
    left_out: int
    inexact: int


def read_slots(path: Path, antenna: int, symbol: int, n_prbs: int | None) -> Imported:
    """One symbol of one antenna of each slot; ``n_prbs`` None: up to the last that is not zero.

    Raises RecordingError, OSError.
    """
    refuse_container(path)
    meta_path, data_path = metadata.pair(path)
    described = metadata.load(meta_path)
    try:
        schema.check(described, _SCHEMA)
        grid, data = _grid_and_data(meta_path, data_path, described)
    except RecordingError as error:
        raise RecordingError(f"{meta_path} is no recording of slots of one carrier: {error}") from error
    offset = int(described["global"].get("core:offset", 0))
    slots = [entry for entry in described["annotations"] if entry.get("core:label") == "slot"]
    taken, symbols, times = [], [], []
    for slot in slots:
        mask, antennas = slot.get("dapp:valid_symbol_mask", ALL_SYMBOLS), slot.get("dapp:n_ants", 1)
        start = slot["core:sample_start"] - offset + (antenna * SYMBOLS + symbol) * SUBCARRIERS
        if start < 0:
            raise RecordingError(f"{data_path} begins after the slot at sample {slot['core:sample_start']}")
        if start + SUBCARRIERS > len(data):
            raise RecordingError(f"{data_path} ends within the slot that begins at sample {slot['core:sample_start']}")
        if mask >> symbol & 1 and antenna < antennas:
            taken.append(slot)
            symbols.append(data[start : start + SUBCARRIERS])
            times.append(slot.get("dapp:timestamp_ns", 0))
    if not taken:
        raise RecordingError(f"{meta_path}: in none of {len(slots)} slots, antenna {antenna} has symbol {symbol}")
    values = np.stack(symbols).view(np.float32).reshape(len(taken), SUBCARRIERS, 2)
    if n_prbs is None:
        used = np.flatnonzero(values.any(axis=(0, 2)))
        n_prbs = int(used[-1]) // SUBCARRIERS_PER_PRB + 1 if len(used) else N_PRBS_MAX
    values = values[:, : n_prbs * SUBCARRIERS_PER_PRB]
    samples = np.clip(np.rint(np.nan_to_num(values)), -32768, 32767).astype(np.int16)
    steps = np.diff(times)
    period_ms = float(np.median(steps)) / 1e6 if len(steps) and np.median(steps) > 0 else 10.0
    return Imported(
        samples, _ue(taken, symbol, n_prbs), period_ms, grid.scs_hz, grid.centre_hz, len(slots) - len(taken),
        int((samples != values).sum()),
    )  # fmt: skip


def _grid_and_data(meta_path: Path, data_path: Path, described: dict[str, Any]) -> tuple[Grid, NDArray[np.complex64]]:
    """The symbols of all slots as the records of a grid, and the samples.  Raises RecordingError, OSError."""
    general, captures = described["global"], described["captures"]
    data_path = meta_path.with_name(general.get("core:dataset", data_path.name))
    if "core:sha512" in general:
        with data_path.open("rb") as file:
            if hashlib.file_digest(file, "sha512").hexdigest() != general["core:sha512"].lower():
                raise RecordingError(f"global.core:sha512 is not that of {data_path}: one of the two was changed")
    count = data_path.stat().st_size // np.dtype(np.complex64).itemsize
    data = np.memmap(data_path, np.complex64, mode="r", shape=(count,)) if count else np.zeros(0, np.complex64)
    scs_hz, centre_hz = general["dapp:subcarrier_spacing_khz"] * 1e3, float(captures[0]["core:frequency"])
    grid = Grid(count // SUBCARRIERS, N_PRBS_MAX, scs_hz, centre_hz)
    check_captures(captures, int(general.get("core:offset", 0)), grid)
    return grid, data


def write(path: Path, imported: Imported) -> None:
    """Write ``path.sigmf-data`` and ``path.sigmf-meta``.  Raises RecordingError, OSError."""
    records, subcarriers, _ = imported.samples.shape
    grid = Grid(records, subcarriers // SUBCARRIERS_PER_PRB, imported.scs_hz, imported.centre_hz)
    areas = []
    for record, row in enumerate(imported.ue if imported.ue is not None else ()):
        borders = np.flatnonzero(np.diff(np.concatenate(([False], row, [False])).astype(np.int8))).tolist()
        areas += [Area("ue", record, record + 1, *ends) for ends in zip(borders[::2], borders[1::2], strict=True)]
    meta_path, data_path = metadata.pair(path)
    data_path.write_bytes(imported.samples.astype("<i2", copy=False).tobytes())
    extra = {"core:description": "imported from a recording of whole slots"}
    metadata.write(meta_path, metadata.describe(grid, areas, imported.period_ms, extra=extra))


def _ue(slots: list[dict[str, Any]], symbol: int, n_prbs: int) -> NDArray[np.bool_] | None:
    """The PRBs that the MAC did not leave free in this symbol."""
    if not any(slot.get("dapp:sensing_ranges") for slot in slots):
        return None
    ue = np.ones((len(slots), n_prbs), np.bool_)
    for row, slot in zip(ue, slots, strict=True):
        for free in slot.get("dapp:sensing_ranges") or ():
            if free["start_symbol"] <= symbol < free["start_symbol"] + free["num_symbols"]:
                row[free["rb_start"] : free["rb_start"] + free["rb_size"]] = False
    return ue


def main(argv: list[str] | None = None) -> int:
    """The command line; returns 0 done, 2 failed, 3 bad arguments."""
    return guarded("import_recording", lambda: _run(_parser().parse_args(argv)))


def _parser() -> Parser:
    parser = Parser(
        prog="python -m twinlink_ran_emulator.import_recording",
        description="Make a recording for the RAN emulator of whole slots that the dApp library 0.3 recorded.",
    )
    parser.add_argument("recording", type=Path, help="its .sigmf-meta")
    parser.add_argument("--out", type=Path, required=True, help="where to write; .sigmf-data and .sigmf-meta are added")
    outputs.add_option(parser)
    parser.add_argument("--antenna", type=convert.whole(0, 3), default=0, help="(%(default)s)")
    parser.add_argument("--symbol", type=convert.whole(0, SYMBOLS - 1), default=13, help="of the slot (%(default)s)")
    parser.add_argument("--n-prbs", type=convert.whole(1, N_PRBS_MAX), help="of the carrier (those that are not zero)")
    return parser


def _run(given: argparse.Namespace) -> int:
    try:
        outputs.refuse_existing("--out", metadata.pair(given.out), given.overwrite)
        imported = read_slots(given.recording, given.antenna, given.symbol, given.n_prbs)
        write(given.out, imported)
    except RecordingError as error:
        raise ConfigurationError(str(error)) from error
    records, subcarriers, _ = imported.samples.shape
    n_prbs = subcarriers // SUBCARRIERS_PER_PRB
    print(
        f"{given.out}: {records} records of {n_prbs} PRBs, every {imported.period_ms:g} ms; "
        f"{imported.left_out} slots without this symbol left out, {imported.inexact} values rounded or limited"
    )
    return DONE


if __name__ == "__main__":
    sys.exit(main())
