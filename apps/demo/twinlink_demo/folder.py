"""The folder of a demo.  A run that replaces an earlier one removes only files that a demo has written."""

import fcntl
import json
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from twinlink_results import results, run

from twinlink.appkit import outputs, records
from twinlink.errors import ConfigurationError

from .flows import FLOWS, cell_id

MARK = ".twinlink-demo"
TRUTH, SUMMARY = "truth.npz", "summary.json"
FIGURES = ("age.png", "age.svg", "delay.png", "delay.svg")
TRANSPORT_FIGURES = ("spectrogram.png", "spectrogram.svg", "prbs.png", "prbs.svg", "block.png", "block.svg")
PARTS = ("emulator", "exporter", "replay")
RECORDED = ("exporter", "replay")


@dataclass(frozen=True, slots=True)
class TransportFolder:
    """Raw files and figures of one transport's run."""

    path: Path

    def log(self, part: str) -> Path:
        """The events of a process, JSON Lines."""
        return self.path / f"{part}.jsonl"

    def said(self, part: str) -> Path:
        """The stderr of a process."""
        return self.path / f"{part}.txt"

    def recording(self, part: str) -> Path:
        """What the link of a process carried; further files of it have a number before the suffix."""
        return self.path / f"{part}.mcap"

    @property
    def playout(self) -> Path:
        """Folder of the gNB's playout, with its ground truth."""
        return self.path / "heard"

    @property
    def rebuilt(self) -> Path:
        """Folder of the twin's rebuilt records."""
        return self.path / "twin"

    @property
    def exporter_summary(self) -> Path:
        """Counters and delays of the exporter."""
        return self.path / "exporter-summary.json"

    def figure(self, name: str) -> Path:
        """One of `TRANSPORT_FIGURES`."""
        return self.path / name

    def _files(self) -> list[Path]:
        files = [self.exporter_summary, *map(self.figure, TRANSPORT_FIGURES)]
        files += [name(part) for part in PARTS for name in (self.log, self.said)]
        for part in RECORDED:
            files += [self.recording(part), *self.path.glob(f"{part}.[0-9][0-9][0-9][0-9].mcap")]
        files += [self.playout / f"heard.{suffix}" for suffix in ("sigmf-data", "sigmf-meta", "npz")]
        files += [self.rebuilt / name for name in ("rebuilt.sigmf-data", "rebuilt.sigmf-meta", "observations.npz")]
        return files

    def clear(self) -> None:
        """Remove the files of a run, and folders that are empty then."""
        for file in self._files():
            file.unlink(missing_ok=True)
        for folder in (self.playout, self.rebuilt, self.path):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


class Folder:
    """The folder of a demo.

    Args:
        path: the folder; need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    @property
    def truth(self) -> Path:
        """``ue``, bool, ``(records, n_prbs)``: the recording's UEs before any block."""
        return self.path / TRUTH

    @property
    def summary(self) -> Path:
        """Every figure, and the verdict."""
        return self.path / SUMMARY

    @property
    def report(self) -> Path:
        """The page."""
        return self.path / results.REPORT

    def figure(self, name: str) -> Path:
        """One of `FIGURES`."""
        return self.path / name

    def transport(self, name: str) -> TransportFolder:
        """The files of one transport."""
        return TransportFolder(self.path / name)

    def prepare(self, transports: list[str], overwrite: bool) -> None:
        """Prepare the folder for a run; ``overwrite``: an earlier one gives way.

        Raises ConfigurationError if that is not allowed, other files are in it, or another demo uses it; OSError.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        mark = self.path / MARK
        if not mark.is_file() and any(self.path.iterdir()):
            raise ConfigurationError(
                f"{self.path} holds files that are not of an earlier demo; name another folder with --out"
            )
        self._lock = mark.open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(
                f"another demo is writing to {self.path}; name another folder with --out"
            ) from None
        try:
            outputs.refuse_existing("--out", [self.path / run.RUN], overwrite)
        except ConfigurationError:
            self.release()
            raise
        self._lock.seek(0)
        for name in _names(self._lock.read()):
            self.transport(name).clear()
            for file in self._records(name):
                file.unlink(missing_ok=True)
        derived = [self.path / name for name in (results.RESULTS, results.TABLE_MD, results.TABLE_CSV)]
        derived += [self.summary, self.report, *map(self.figure, FIGURES)]
        for file in (self.path / run.RUN, self.truth, *derived):
            file.unlink(missing_ok=True)
        self._lock.seek(0)
        self._lock.truncate()
        json.dump({"what": "written by twinlink demo, which replaces its own files here", "transports": transports},
                  self._lock)  # fmt: skip
        self._lock.flush()
        for name in transports:
            self.transport(name).path.mkdir(exist_ok=True)

    def _records(self, transport: str) -> list[Path]:
        names = [cell_id(transport, flow) for flow in FLOWS]
        return [records.file(self.path / run.RECORDS, name, side) for name in names for side in records.TABLES]

    def release(self) -> None:
        """Release the folder for another demo."""
        if self._lock:
            self._lock.close()
            self._lock = None


def _names(text: str) -> list[str]:
    """The transports of the earlier run; names that lead out of the folder are ignored."""
    try:
        names = json.loads(text)["transports"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []
    return [name for name in names if isinstance(name, str) and name not in ("", ".", "..") and "/" not in name]
