"""The raw files of one transport's run; those missing after a failure are None or empty."""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from twinlink_ran_emulator.recording import Recording, read
from twinlink_replay.detection.features import subcarrier_power

from twinlink.appkit.arrays import read_arrays
from twinlink.spectrum import SUBCARRIERS_PER_PRB

from .child_process import parse_events
from .folder import PARTS, TransportFolder

PIECE = 512  # records
_TIMES = ("sequence", "epoch", "sent_ns", "received_ns", "analysed_ns")
_CELLS = ("occupied", "interfered", "interfered_prompt")

Times = NDArray[np.int64]
Cells = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Playout:
    """The gNB's playout with its ground truth.

    Attributes:
        samples: int16, ``(records, subcarriers, 2)``.
        ue, interferer, blocked: bool, ``(records, n_prbs)``; ``ue`` without blocked cells.
        freed: likewise: a UE would transmit there without the block.
        played_ns: Unix time of each record.
        period_ns: time between two records by the schedule.
        pace: of the recorded pace: 0.5 is half as fast.
    """

    samples: NDArray[np.int16]
    ue: Cells
    interferer: Cells
    blocked: Cells
    freed: Cells
    played_ns: Times
    period_ns: float
    pace: float = 1.0


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The records rebuilt by the twin, in order of arrival.

    Attributes:
        samples: int16, ``(messages, subcarriers, 2)``; may end early if the twin was killed.
        record: index of the record as played (E3 timestamp - 1), -1 if the RAN gave none.
        sequence, epoch: of the message.
        sent_ns, received_ns, analysed_ns: Unix time.
        occupied, interfered, prompt: bool, ``(messages, n_prbs)``: any transmission; interference by the smoothed
            answer, and by the causal one.
    """

    samples: NDArray[np.int16]
    record: Times
    sequence: Times
    epoch: NDArray[np.uint64]
    sent_ns: Times
    received_ns: Times
    analysed_ns: Times
    occupied: Cells
    interfered: Cells
    prompt: Cells


@dataclass(frozen=True, slots=True)
class Evidence:
    """One transport's run: the events of each process, and the exporter's summary, empty without one."""

    playout: Playout | None
    rebuilt: Rebuilt | None
    events: dict[str, list[dict[str, Any]]]
    exporter: dict[str, Any]
    n_prbs: int

    def named(self, part: str, *names: str) -> list[dict[str, Any]]:
        """Events of a process with one of these names."""
        return [event for event in self.events[part] if event["event"] in names]

    @property
    def begin_ns(self) -> int | None:
        """Time of the first record."""
        if self.playout is not None and len(self.playout.played_ns):
            return int(self.playout.played_ns[0])
        if self.rebuilt is not None and len(self.rebuilt.sent_ns):
            return int(self.rebuilt.sent_ns[0])
        return None


def load(folder: TransportFolder, ue: Cells, pace: float = 1.0) -> Evidence:
    """Read a transport's folder; ``ue`` is the truth of the recording that was played, ``(records, n_prbs)``."""
    events = {}
    for part in PARTS:
        log = folder.log(part)
        events[part] = parse_events(log.read_bytes()) if log.exists() else []
    exporter: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, RecursionError):
        exporter = json.loads(folder.exporter_summary.read_text(encoding="utf-8"))
    n_prbs = ue.shape[1]
    return Evidence(_playout(folder.playout, ue, pace), _rebuilt(folder.rebuilt, n_prbs), events, exporter, n_prbs)


def _playout(folder: Path, ue: Cells, pace: float) -> Playout | None:
    try:
        played: Recording = read(folder / "heard.sigmf-meta")
        found = read_arrays(folder / "heard.npz", numbers=("played_ns",), flags=("blocked",))
    except (OSError, ValueError):  # RecordingError, too
        return None
    played_ns, blocked = found["played_ns"], found["blocked"]
    if blocked.shape != played.ue.shape or blocked.shape[1] != ue.shape[1]:
        return None
    freed = blocked & ue[np.arange(len(blocked)) % len(ue)]
    interferer, period_ns = played.interferer > 0, played.period_ns / pace
    return Playout(played.samples, played.ue, interferer, blocked, freed, played_ns, period_ns, pace)


def _rebuilt(folder: Path, n_prbs: int) -> Rebuilt | None:
    try:
        data = (folder / "rebuilt.sigmf-data").read_bytes()
        found = read_arrays(folder / "observations.npz", numbers=(*_TIMES, "e3_timestamp"), flags=_CELLS)
        if len(found["occupied"]) and found["occupied"].shape[1] != n_prbs:
            raise ValueError("it is of another carrier")
        octets = n_prbs * SUBCARRIERS_PER_PRB * 4
        whole = len(data) // octets * octets
        return Rebuilt(
            samples=np.frombuffer(data[:whole], "<i2").reshape(-1, n_prbs * SUBCARRIERS_PER_PRB, 2),
            record=np.where(found["e3_timestamp"] > 0, found["e3_timestamp"] - 1, -1),
            **{name: found[name] for name in _TIMES},
            **{name: found[name] for name in ("occupied", "interfered")},
            prompt=found["interfered_prompt"],
        )
    except (OSError, ValueError):
        return None


def prb_power(samples: NDArray[np.int16]) -> NDArray[np.float32]:
    """Mean ``|x|^2`` of each PRB of each record in LSB^2, ``(records, n_prbs)``; a piece at a time, to save memory."""
    pieces = [np.zeros((0, samples.shape[1] // SUBCARRIERS_PER_PRB), np.float32)]
    for start in range(0, len(samples), PIECE):
        values = subcarrier_power(samples[start : start + PIECE])
        pieces.append(values.reshape(len(values), -1, SUBCARRIERS_PER_PRB).mean(axis=-1))
    return np.concatenate(pieces)
