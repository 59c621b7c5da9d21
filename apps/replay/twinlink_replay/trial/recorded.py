"""What was heard of a cell until a time of a recording, by the twin's detector."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinlink.control import PrbBlockResult
from twinlink.errors import ConfigurationError, MalformedPayload
from twinlink.recording import Playback
from twinlink.signed_payload import body_of
from twinlink.spectrum import Spectrum

from ..detection.detector import Detector
from ..detection.features import prb_features, subcarrier_power
from .heard import MAX_GAP, STEP_MS, STEPS, Heard

FLOWS = "spectrum", "control-result"
SETTLES_S = 5.0  # of the detector, before what is heard
BATCH = 16


@dataclass(slots=True)
class Recorded:
    """A recording until a time.

    Attributes:
        heard: what was heard, on PRBs numbered from 0.
        at_s: the time, from the recording's begin.
        interfered: PRBs on which the detector finds an interferer then.
        records: number of records that were heard.
        others: of another carrier than the first, which were left out.
        problems: what is damaged or cut.
    """

    heard: Heard
    at_s: float
    interfered: tuple[int, ...]
    records: int
    others: int
    problems: list[str]


def hear(paths: Sequence[Path], at_s: float | None) -> Recorded:
    """Hear a recording until a time; None: until its last record.

    Raises OSError; RecordingError where a file is none; ConfigurationError where there is nothing to hear.
    """
    whole = Playback(paths, flows=("spectrum",))
    length_s = (whole.end_ns - whole.begin_ns) / 1e9
    given_s, at_s = at_s, length_s if at_s is None else at_s
    if not 0 < at_s <= length_s:
        raise ConfigurationError(f"--at {at_s:g}: the recording has {length_s:.3f} s, and something must be heard")
    begin_s = max(0.0, at_s - STEPS * STEP_MS / 1000 - SETTLES_S)
    playback = Playback(paths, flows=FLOWS, start_s=begin_s, end_s=at_s)
    hearing, newest_ns = _Hearing(), 0
    for one in playback.items():
        if one.payload is not None and one.flow == "spectrum":
            hearing.take(_spectrum(one.payload))
            newest_ns = one.due_ns
        elif one.payload is not None:
            hearing.answered(one.payload)
    hearing.analyse()
    if hearing.heard is None:
        raise ConfigurationError(f"no record is in the recording before {at_s:g} s: {_first(whole)}")
    newest_s = (newest_ns - whole.begin_ns) / 1e9
    if given_s is None:
        at_s = newest_s
    elif at_s - newest_s > MAX_GAP * STEP_MS / 1000:
        text = f"the newest record is {at_s - newest_s:.1f} s older, and how the cell is then is not known"
        raise ConfigurationError(f"--at {at_s:g}: {text}: choose {newest_s:.3f}, or a time with records")
    prbs = tuple(np.flatnonzero(hearing.interfered).tolist())
    return Recorded(hearing.heard, at_s, prbs, hearing.records, hearing.others, playback.problems)


def _first(playback: Playback) -> str:
    """Where the records of a recording begin, and what to do."""
    for one in playback.items():
        if one.payload is not None:
            return f"the first is at {(one.due_ns - playback.begin_ns) / 1e9:.3f} s: choose a later time with --at"
    return "it has none on flow spectrum"


def _spectrum(payload: bytes) -> Spectrum:
    try:
        return Spectrum.decode(payload)
    except MalformedPayload as error:
        text = f"flow spectrum of the recording has not the I/Q of symbols, which is what is read here: {error}"
        raise ConfigurationError(text) from None


class _Hearing:
    def __init__(self) -> None:
        self.heard: Heard | None = None
        self.interfered = np.zeros(0, np.bool_)
        self.records = self.others = 0
        self._detector = Detector(1)
        self._blocked = np.zeros(0, np.bool_)
        self._waiting: list[Spectrum] = []

    def take(self, spectrum: Spectrum) -> None:
        if self.heard is None:
            self.heard, self._detector = Heard(spectrum.n_prbs), Detector(spectrum.n_prbs, settle=False)
            self._blocked = np.zeros(spectrum.n_prbs, np.bool_)
        if spectrum.n_prbs != self.heard.n_prbs:
            self.others += 1
            return
        self._waiting.append(spectrum)
        if len(self._waiting) == BATCH:
            self.analyse()

    def answered(self, payload: bytes) -> None:
        """What stands blocked from here on."""
        self.analyse()
        try:
            prbs = PrbBlockResult.decode(body_of(payload)).prbs
        except MalformedPayload:
            return  # what stands blocked is as before
        self._blocked = np.isin(np.arange(len(self._blocked)), prbs)

    def analyse(self) -> None:
        if not self._waiting or self.heard is None:
            return
        samples: NDArray[np.int16] = np.stack([one.samples for one in self._waiting])
        answer = self._detector.add(prb_features(subcarrier_power(samples), samples))
        for spectrum, occupied, interfered in zip(self._waiting, answer.occupied, answer.interfered, strict=True):
            self.heard.add(spectrum.observed_ns, occupied | interfered, interfered, self._blocked)
        self.records += len(self._waiting)
        self.interfered = answer.interfered[-1]
        self._waiting.clear()
