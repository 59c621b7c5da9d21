"""The playout as a recording with its ground truth and the send times, for checking the twin."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinlink.appkit.arrays import write_arrays
from twinlink.appkit.console import writing

from . import metadata
from .recording import Recording
from .truth import Area, Grid, areas_of

DATA, META, TIMES = "heard.sigmf-data", "heard.sigmf-meta", "heard.npz"
AT_THE_END = (META, TIMES)
DESCRIPTION = "as played by twinlink-ran-emulator, PRB blocks applied"


def existing(directory: Path) -> list[Path]:
    """The files that tell whether an earlier playout is there: one that played nothing is none."""
    return [directory / name for name in ((DATA,) if (directory / DATA).exists() else AT_THE_END)]


class PlayoutLog:
    """Writes heard.sigmf-data as it is played, heard.npz at the end.

    heard.sigmf-meta is there from the first record on, so that a playout that is killed can be read; its end adds the
    annotations and the hash.  heard.npz holds ``played_ns`` (int64, Unix time of each record) and ``blocked`` (bool,
    ``(n_records, n_prbs)``).  Replaces what is there.  Raises OSError if the directory cannot be written.
    """

    def __init__(self, directory: Path, recording: Recording) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._recording = recording
        self._data = (directory / DATA).open("wb")
        for name in AT_THE_END:  # of an earlier playout
            (directory / name).unlink(missing_ok=True)
        self._sha512 = hashlib.sha512()
        self._played_ns: list[int] = []
        self._records: list[int] = []
        self._blocked: list[NDArray[np.bool_]] = []

    def add(self, record: int, samples: NDArray[np.int16], blocked: NDArray[np.bool_], played_ns: int) -> None:
        """Append a record as it was played; ``record`` is its index in the source recording."""
        octets = samples.astype("<i2", copy=False).tobytes()
        with writing(Path(self._data.name)):
            self._data.write(octets)
            self._data.flush()
        self._sha512.update(octets)
        self._played_ns.append(played_ns)
        self._records.append(record)
        self._blocked.append(blocked)
        if len(self._records) == 1:
            with writing(self._directory):
                self._write_meta([], {"core:description": f"{DESCRIPTION}; not ended: without annotations"})

    def close(self) -> None:
        """Write the metadata and the times; a second call does nothing."""
        if self._data.closed:
            return
        with writing(self._directory):
            self._finish()

    def _finish(self) -> None:
        self._data.close()
        source = self._recording
        records = np.array(self._records, np.int64)
        blocked = np.array(self._blocked, np.bool_).reshape(len(records), source.grid.n_prbs)
        played_ns = np.array(self._played_ns, np.int64)
        arrays = {"played_ns": played_ns, "blocked": blocked}
        write_arrays(self._directory / TIMES, arrays, compressed=False)
        areas = areas_of("ue", source.ue[records] & ~blocked) + areas_of("interferer", source.interferer[records] > 0)
        self._write_meta(areas, {"core:sha512": self._sha512.hexdigest(), "core:description": DESCRIPTION})

    def _write_meta(self, areas: list[Area], extra: dict[str, str]) -> None:
        source = self._recording
        grid = Grid(len(self._records), source.grid.n_prbs, source.grid.scs_hz, source.grid.centre_hz)
        capture = {}
        if self._played_ns:
            capture["core:datetime"] = datetime.fromtimestamp(self._played_ns[0] / 1e9, UTC).strftime(
                "%Y-%m-%dT%H:%M:%S.%fZ"
            )
        extra |= {"core:recorder": "twinlink_ran_emulator.heard"}
        period_ms = source.period_ns / 1e6
        described = metadata.describe(grid, areas, period_ms, extra=extra, capture=capture)
        metadata.write(self._directory / META, described)
