"""The SigMF metadata of a recording: read from a file, and as `make_recording` and `playout_log` write it.

docs/ran-emulator.md has the keys.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from twinlink.process import files
from twinlink.process.text import parse_json
from twinlink.spectrum import SUBCARRIERS_PER_PRB

from .schema import RecordingError, check
from .truth import Area, Grid

SIGMF_VERSION = "1.2.6"
MOST_OCTETS = 256 * 1024 * 1024  # of a metadata file
EXTENSIONS = [
    {"name": "dapp", "version": "1.0.0", "optional": False},
    {"name": "twinlink", "version": "1.0.0", "optional": True},
]


def pair(path: Path) -> tuple[Path, Path]:
    """The metadata file and the data file of a recording, given either of them or their name without suffix."""
    stem = path.with_suffix("") if path.suffix in (".sigmf-meta", ".sigmf-data") else path
    return stem.with_name(stem.name + ".sigmf-meta"), stem.with_name(stem.name + ".sigmf-data")


def load(path: Path) -> Any:
    """The content of a metadata file, not yet checked.  Raises OSError, or RecordingError if it is not JSON."""
    octets = files.read(path, MOST_OCTETS)
    try:
        return parse_json(octets)
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"{path} is not SigMF metadata (JSON): {error}") from error


def describe(
    grid: Grid,
    areas: Iterable[Area],
    period_ms: float,
    *,
    extra: dict[str, Any] | None = None,
    capture: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The metadata; ``extra`` adds keys to ``global``, ``capture`` to the one capture."""
    scs_khz = grid.scs_hz / 1e3
    return {
        "global": {
            "core:datatype": "ci16_le",
            "core:sample_rate": grid.bins * grid.scs_hz,
            "core:version": SIGMF_VERSION,
            "core:extensions": EXTENSIONS,
            "dapp:domain": "frequency",
            "dapp:n_prbs": grid.n_prbs,
            "dapp:n_sc_per_prb": SUBCARRIERS_PER_PRB,
            "dapp:n_ants": 1,
            "dapp:n_symbols": 1,
            "dapp:samples_per_slot": grid.bins,
            "dapp:subcarrier_spacing_khz": int(scs_khz) if scs_khz.is_integer() else scs_khz,
            "twinlink:record_period_ms": period_ms,
            **(extra or {}),
        },
        "captures": [{"core:sample_start": 0, "core:frequency": grid.centre_hz, **(capture or {})}],
        "annotations": [
            area.annotation(grid) for area in sorted(areas, key=lambda area: (area.first_record, area.first_prb))
        ],
    }


def write(path: Path, metadata: dict[str, Any]) -> None:
    """Check the metadata against the schema and write it, one annotation per line.  Raises RecordingError, OSError."""
    check(metadata)
    head = json.dumps({key: metadata[key] for key in ("global", "captures")}, indent=2)
    lines = ",\n".join("    " + json.dumps(annotation) for annotation in metadata["annotations"])
    with files.whole(path) as part:
        part.write_text(f'{head[:-2]},\n  "annotations": [\n{lines}\n  ]\n}}\n')
