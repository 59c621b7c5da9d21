"""Read a recording: frequency-domain samples of an uplink in SigMF (docs/ran-emulator.md)."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlink.process import files

from .captures import check_captures
from .container import refuse_container
from .metadata import load, pair
from .schema import RecordingError, check
from .truth import Area, Grid, mark

DEFAULT_PERIOD_MS = 10.0  # a gNB captures one symbol per frame
BYTES_PER_SAMPLE = 4  # ci16
LABELS = ("ue", "interferer")
MOST_OCTETS = 2 * 1024 * 1024 * 1024  # of a data file, which is held in memory
EXAMPLE = "uplink-106prb.sigmf-meta"


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording in memory.

    Attributes:
        path: of the metadata file.
        grid: records, PRBs, subcarrier spacing and carrier centre.
        samples: int16, shape ``(n_records, n_prbs * 12, 2)``, columns I and Q, lowest frequency first; read-only.
        areas: the annotations labelled ``ue`` or ``interferer``, as rectangles of records and PRBs.
        ue: bool, shape ``(n_records, n_prbs)``: a UE transmits there.
        interferer: int32, shape ``(n_records, n_prbs)``: number (from 1) of the ``interferer`` annotation, else 0.
        period_ns: time between records.
    """

    path: Path
    grid: Grid
    samples: NDArray[np.int16]
    areas: tuple[Area, ...]
    ue: NDArray[np.bool_]
    interferer: NDArray[np.int32]
    period_ns: int


def example() -> Path:
    """The recording that comes with twinlink."""
    return Path(__file__).parent / "recordings" / EXAMPLE


def read(path: Path) -> Recording:
    """Read a recording, given its .sigmf-meta file, its .sigmf-data file or the name without either.

    Raises RecordingError, which names the file and the wrong key.
    """
    refuse_container(path)
    meta_path, data_path = pair(path)
    try:
        metadata = load(meta_path)
    except OSError as error:
        raise RecordingError(f"{meta_path} cannot be read: {error.strerror}") from error
    try:
        check(metadata)
        return _assemble(meta_path, data_path, metadata)
    except RecordingError as error:
        raise RecordingError(f"{meta_path}: {error}") from error


def _assemble(meta_path: Path, data_path: Path, metadata: dict[str, Any]) -> Recording:
    fields = metadata["global"]
    capture = metadata["captures"][0]
    n_prbs, bins = int(fields["dapp:n_prbs"]), int(fields["dapp:samples_per_slot"])
    if bins != n_prbs * fields["dapp:n_sc_per_prb"]:
        raise RecordingError(
            f"global.dapp:samples_per_slot is {bins}, but dapp:n_prbs {n_prbs} x dapp:n_sc_per_prb 12 is {n_prbs * 12}"
        )
    scs_hz = fields["dapp:subcarrier_spacing_khz"] * 1e3
    if fields["core:sample_rate"] < 0.999 * bins * scs_hz:
        raise RecordingError(
            f"global.core:sample_rate is {fields['core:sample_rate']:g}, but {bins} subcarriers of "
            f"{scs_hz / 1e3:g} kHz (dapp:subcarrier_spacing_khz) need {bins * scs_hz:g}"
        )
    if "core:frequency" not in capture:
        raise RecordingError("captures[0].core:frequency, the carrier centre, is missing")

    if "core:dataset" in fields:
        data_path = meta_path.with_name(fields["core:dataset"])
    samples = _read_samples(data_path, fields, bins)
    grid = Grid(len(samples), n_prbs, scs_hz, float(capture["core:frequency"]))
    offset = int(fields.get("core:offset", 0))
    check_captures(metadata["captures"], offset, grid)
    areas = tuple(
        area
        for index, annotation in enumerate(metadata["annotations"])
        if annotation.get("core:label") in LABELS
        for area in [_area(f"annotations[{index}]", annotation, offset, grid)]
        if area.end_record > area.first_record and area.end_prb > area.first_prb
    )
    return Recording(
        path=meta_path,
        grid=grid,
        samples=samples,
        areas=areas,
        ue=mark(areas, "ue", grid.n_records, n_prbs) > 0,
        interferer=mark(areas, "interferer", grid.n_records, n_prbs),
        period_ns=round(fields.get("twinlink:record_period_ms", DEFAULT_PERIOD_MS) * 1e6),
    )


def _read_samples(data_path: Path, fields: dict[str, Any], bins: int) -> NDArray[np.int16]:
    try:
        data = files.read(data_path, MOST_OCTETS)
    except (OSError, UnicodeEncodeError) as error:  # core:dataset may be no valid file name
        reason = getattr(error, "strerror", None) or error
        raise RecordingError(f"its data file {data_path} cannot be read: {reason}") from error
    record_bytes = bins * BYTES_PER_SAMPLE
    if len(data) == 0 or len(data) % record_bytes:
        raise RecordingError(
            f"{data_path} holds {len(data)} bytes, which is not a whole number of records of {record_bytes} bytes "
            f"(global.dapp:samples_per_slot {bins} x 4): the data is truncated, or the key is wrong"
        )
    if "core:sha512" in fields and hashlib.sha512(data).hexdigest() != fields["core:sha512"].lower():
        raise RecordingError(f"global.core:sha512 is not that of {data_path}: one of the two was changed or damaged")
    return np.frombuffer(data, "<i2").astype(np.int16, copy=False).reshape(-1, bins, 2)


def _area(where: str, annotation: dict[str, Any], offset: int, grid: Grid) -> Area:
    start = int(annotation["core:sample_start"]) - offset  # of the data, as its end is
    total = grid.n_records * grid.bins
    count = int(annotation.get("core:sample_count", max(total - start, 0)))
    if start < 0:
        raise RecordingError(f"{where}.core:sample_start is {start + offset}, before the data (core:offset {offset})")
    for key, value in (("core:sample_start", start), ("core:sample_count", count)):
        if value % grid.bins:
            raise RecordingError(
                f"{where}.{key} is {int(annotation[key])}, not on a border of records of {grid.bins} samples"
            )
    if start + count > total:
        raise RecordingError(
            f"{where} ends at sample {offset + start + count}, but the data holds {total} samples from {offset} on"
        )
    first_prb, end_prb = 0, grid.n_prbs
    if "core:freq_lower_edge" in annotation:
        first_prb = _border(f"{where}.core:freq_lower_edge", annotation["core:freq_lower_edge"], grid)
    if "core:freq_upper_edge" in annotation:
        end_prb = _border(f"{where}.core:freq_upper_edge", annotation["core:freq_upper_edge"], grid)
    if end_prb < first_prb:
        raise RecordingError(f"{where}.core:freq_lower_edge lies above its core:freq_upper_edge")
    comment = annotation.get("core:comment", "")
    return Area(
        annotation["core:label"], start // grid.bins, (start + count) // grid.bins, first_prb, end_prb, str(comment)
    )


def _border(where: str, frequency_hz: float, grid: Grid) -> int:
    """The PRB border at a frequency.

    The tolerance is a quarter of a PRB: some writers put the edge on the first subcarrier's centre, half a subcarrier
    off.
    """
    prb = (frequency_hz - grid.edge_hz(0)) / (grid.edge_hz(1) - grid.edge_hz(0))
    if not -0.25 <= prb <= grid.n_prbs + 0.25 or abs(prb - round(prb)) > 0.25:
        low, high = grid.edge_hz(0) / 1e6, grid.edge_hz(grid.n_prbs) / 1e6
        raise RecordingError(
            f"{where} is {frequency_hz:.0f} Hz, not a PRB border of this carrier ({low:.3f} to {high:.3f} MHz, "
            f"PRBs of {(grid.edge_hz(1) - grid.edge_hz(0)) / 1e3:g} kHz)"
        )
    return round(prb)
