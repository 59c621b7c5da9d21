"""The labelled set: each PRB of each record of a recording, with the class that the emulator's truth gives it.

A record names the place in the scene at which the emulator played it (``timestamp`` of its E3 indication, from 1), so
that the truth is joined exactly, also beside gaps.

The split is by time and by run, never at random, since neighbouring records are alike:

| part       | is                                                        | serves                                  |
|------------|-----------------------------------------------------------|-----------------------------------------|
| train      | the first 65 % of the time of the training runs           | the weights                             |
| validation | the rest of their time, after a gap of `GAP` records      | calibration and thresholds              |
| test       | other runs, of other seeds, whole                         | the report, once                        |
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from twinlink_export.source import Source
from twinlink_ran_emulator import recording as played
from twinlink_ran_emulator.truth import Area

import twinlink
from twinlink.spectrum import Spectrum

from . import scenes
from .runs import Session

CLASSES = "free", "ue", "noise", "tone", "sweep"  # a burst of noise is noise: records of the two are alike
FIRST_INTERFERER = 2  # classes from here on are interferers, with or without a UE below
TRAIN_SHARE = 0.65
GAP = 64  # records, as long as the longest mean of the features
FLOW = "spectrum"

Samples = NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a session, read.

    Attributes:
        seed: of its scene.
        samples: int16, shape ``(records, n_prbs * 12, 2)``.
        classes: int8, shape ``(records, n_prbs)``: index in `CLASSES`.
        ue: bool, same shape: a UE is there, below an interferer, too.
        missing: records of the scene that the recording lacks.
    """

    seed: int
    samples: Samples
    classes: NDArray[np.int8]
    ue: NDArray[np.bool_]
    missing: int

    @property
    def n_prbs(self) -> int:
        """PRBs of the carrier."""
        return self.classes.shape[1]

    @property
    def interfered(self) -> NDArray[np.bool_]:
        """Where an interferer is."""
        return self.classes >= FIRST_INTERFERER

    @property
    def cut(self) -> int:
        """Records of the part for training; validation begins `GAP` records later."""
        return round(TRAIN_SHARE * len(self.classes))

    @property
    def sha256(self) -> str:
        """Of samples and classes, so that a set can be compared with another."""
        return hashlib.sha256(self.samples.tobytes() + self.classes.tobytes()).hexdigest()


def read(session: Session) -> list[Run]:
    """Read a recording and join its truth; a run for each scene.

    Raises RecordingError (of either file), MalformedPayload, OSError; ConfigurationError where the two do not belong
    together.
    """
    truth = played.read(session.scenes)
    rows: dict[int, Samples] = {}
    for place, record in _records(session.recording):
        if not 0 <= place < truth.grid.n_records or record.n_prbs != truth.grid.n_prbs:
            raise twinlink.ConfigurationError(
                f"{session.recording} has a record of {record.n_prbs} PRBs at place {place}, and {session.scenes} has "
                f"{truth.grid.n_records} of {truth.grid.n_prbs}: they are not of the same run; name another folder"
            )
        rows[place] = record.samples
    classes, runs = _classes(truth), []
    for number, seed in enumerate(session.seeds):
        first = number * session.n_records
        places = [place for place in range(first, first + session.n_records) if place in rows]
        if not places:
            raise twinlink.ConfigurationError(
                f"{session.recording} has no record of seed {seed}: record it again, on a machine with less to do"
            )
        samples = np.stack([rows[place] for place in places])
        missing = session.n_records - len(places)
        runs.append(Run(seed, samples, classes[places], truth.ue[places], missing))
    return runs


def _records(path: Path) -> Iterator[tuple[int, Spectrum]]:
    source = Source([path])
    if source.problems:
        raise twinlink.ConfigurationError(f"{source.problems[0]}; `twinlink verify {path}` says more")
    for message in source.messages():
        if message.flow == FLOW:
            record = Spectrum.decode(message.payload)
            yield record.e3.get("timestamp", 0) - 1, record


def _classes(scene: played.Recording) -> NDArray[np.int8]:
    """The class of each cell; of overlapping interferers, that of the later annotation."""
    classes = scene.ue.astype(np.int8)
    for area in scene.areas:
        if area.label == "interferer":
            classes[area.first_record : area.end_record, area.first_prb : area.end_prb] = _class_of(area)
    return classes


def _class_of(area: Area) -> int:
    kind = scenes.kind_of(area)
    return CLASSES.index("noise" if kind == "pulse" else kind)
