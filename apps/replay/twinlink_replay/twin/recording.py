"""The twin's recording of a run: rebuilt.sigmf-{data,meta} and observations.npz.

``observations.npz`` is kept in memory until the end: 1.3 KB for a record of 106 PRBs (at 100 records a second: 0.47 GB
an hour).  ``rebuilt.sigmf-data`` is written as the records arrive, ``rebuilt.sigmf-meta`` with the first of them: both
can be read when the process is killed.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlink.appkit.arrays import write_arrays
from twinlink.appkit.console import writing
from twinlink.spectrum import SUBCARRIERS_PER_PRB

from ..blocks.observer import Record
from ..detection.detector import Smoothed
from ..detection.features import to_dbfs

DATA, META, OBSERVATIONS = "rebuilt.sigmf-data", "rebuilt.sigmf-meta", "observations.npz"
_FIELDS = ("sequence", "epoch", "observed_ns", "sent_ns", "received_ns", "e3_timestamp")  # from each record


def existing(folder: Path) -> list[Path]:
    """The files that tell whether an earlier recording is there: one without a record is none."""
    return [folder / name for name in ((DATA,) if (folder / DATA).exists() else (META, OBSERVATIONS))]


class Recording:
    """Writes into a folder, which it creates; replaces an earlier recording.  Raises OSError.

    ``observations.npz`` holds, per record in the order of arrival: sequence, e3_timestamp (-1 without E3), observed_ns,
    sent_ns, received_ns, analysed_ns (int64, Unix ns), epoch (uint64); and of shape ``(records, n_prbs)`` power_dbfs
    (float32), occupied, interfered and interfered_prompt (bool).  ``occupied`` and ``interfered`` are the detector's
    smoothed answers, ``interfered_prompt`` is the filtered answer on which decisions are made.  ``free``, of the same
    shape, is there if the exporter sends what the gNB's MAC left free: False also where that is not known.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._data = (folder / DATA).open("wb", buffering=1024 * 1024)
        for name in (META, OBSERVATIONS):  # of an earlier recording
            (folder / name).unlink(missing_ok=True)
        self._first: Record | None = None
        self._numbers: dict[str, list[int]] = {name: [] for name in (*_FIELDS, "analysed_ns")}
        self._power: list[NDArray[np.float32]] = []
        self._filtered: list[NDArray[np.bool_]] = []
        self._smoothed: list[Smoothed] = []
        self._free: list[NDArray[np.bool_] | None] = []

    def add(
        self,
        records: list[Record],
        power: NDArray[np.float32],
        filtered: NDArray[np.bool_],
        analysed_ns: int,
        free: NDArray[np.bool_] | None = None,
    ) -> None:
        """Add records with their PRB powers in LSB^2, filtered answers and free PRBs, all ``(records, n_prbs)``."""
        if self._first is None:
            self._first = records[0]
            self._write_meta()
        with writing(self._folder):
            for record in records:
                self._data.write(record.samples.astype("<i2", copy=False).tobytes())
            self._data.flush()
        for record in records:
            for name in _FIELDS:
                self._numbers[name].append(getattr(record, name))
            self._numbers["analysed_ns"].append(analysed_ns)
        self._power.append(to_dbfs(power))
        self._filtered.append(filtered)
        self._free.append(free)

    def add_smoothed(self, answers: list[Smoothed]) -> None:
        """Add smoothed answers, in order."""
        self._smoothed += answers

    def close(self) -> None:
        """Write the remaining data, and close the files."""
        with writing(self._folder):
            self._data.close()
        if self._first is None:
            self._write_meta()
        none = np.zeros((0, self._first.n_prbs if self._first else 0))
        arrays = {
            **{
                name: np.array(all_of, np.uint64 if name == "epoch" else np.int64)
                for name, all_of in self._numbers.items()
            },
            "power_dbfs": np.concatenate([none.astype(np.float32), *self._power]),
            "occupied": np.concatenate([none.astype(bool), *(answer.occupied for answer in self._smoothed)]),
            "interfered": np.concatenate([none.astype(bool), *(answer.interfered for answer in self._smoothed)]),
            "interfered_prompt": np.concatenate([none.astype(bool), *self._filtered]),
        }
        if any(free is not None for free in self._free):
            arrays["free"] = np.concatenate([
                np.zeros_like(filtered) if free is None else free
                for free, filtered in zip(self._free, self._filtered, strict=True)
            ])  # fmt: skip
        write_arrays(self._folder / OBSERVATIONS, arrays)

    def _write_meta(self) -> None:
        """Write it whole or not at all."""
        part = self._folder / f"{META}.part"
        with writing(self._folder):
            part.write_text(json.dumps(self._meta(), indent=2) + "\n", encoding="utf-8")
            part.replace(self._folder / META)

    def _meta(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "core:datatype": "ci16_le",
            "core:version": "1.2.0",
            "core:description": "Uplink spectrum as the digital twin rebuilt it, records in the order of arrival",
            "core:recorder": "twinlink-replay",
            "core:extensions": [{"name": "dapp", "version": "1.0.0", "optional": False}],
        }
        first = self._first
        if first is None:
            return {"global": described, "captures": [], "annotations": []}
        bins = first.n_prbs * SUBCARRIERS_PER_PRB
        described |= {
            "core:sample_rate": float(bins * first.scs_hz),
            "dapp:domain": "frequency",
            "dapp:schema_version": "1.0.0",
            "dapp:n_prbs": first.n_prbs,
            "dapp:n_sc_per_prb": SUBCARRIERS_PER_PRB,
            "dapp:n_ants": 1,
            "dapp:n_symbols": 1,
            "dapp:samples_per_slot": bins,
            "dapp:subcarrier_spacing_khz": first.scs_hz / 1000 if first.scs_hz % 1000 else first.scs_hz // 1000,
        }
        begin = datetime.fromtimestamp(first.observed_ns / 1e9, UTC).isoformat().replace("+00:00", "Z")
        capture = {"core:sample_start": 0, "core:frequency": first.centre_hz, "core:datetime": begin}
        return {"global": described, "captures": [capture], "annotations": []}
