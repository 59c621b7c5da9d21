"""How far the twin's picture is from what the exporter heard: a score from 0 to 1 for each window.  No I/O, no clock.

The score is the least of its parts, so that it names what is wrong, and no part makes up for another:

| part         | is                                                                              | reaches 0 at       |
|--------------|---------------------------------------------------------------------------------|--------------------|
| completeness | records here / records there, those that the exporter could not read included   | 0                  |
| occupancy    | 1 - E: E is the mean over the PRBs of the absolute difference of their occupied  | E = 1              |
|              | shares, each the share of records above the threshold that the digest states     |                    |
| spectrum     | 1 - D / `SPECTRUM_ZERO_DB`: D is the log-spectral distance, the root mean square | D = 6.2 dB         |
|              | over the PRBs of the difference of mean power in dB                              |                    |
| age          | 1 up to `AGE_FULL_S`, then falling linearly                                      | `AGE_ZERO_S`       |
| kpm          | 1 - the absolute difference of the usage of the uplink (`twinlink.kpm`) by the   | 100 percentage     |
|              | twin's analysis and by the gNB's scheduler                                       | points             |

At a distance of 6.2 dB noise is taken for an interferer of 5 dB, and such an interferer for noise: the detector's
threshold.  The limits of age are those of `twinlink.sync`, for stale and for out of sync.
"""

import math
from collections import OrderedDict
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from .digest import MIN_POWER, QUANTISATION, WINDOW_NS, Digest, Observed, Rows, Window, begin_of
from .kpm import Kpm, Source, Usage
from .sync import Thresholds

SPECTRUM_ZERO_DB = 10 * math.log10(MIN_POWER)
AGE_FULL_S, AGE_ZERO_S = Thresholds().stale_after, Thresholds().out_after
GRACE_NS = round(AGE_ZERO_S * 1e9)  # for records after their digest: with less fresh ones the score is 0
REPLAYED_NS = 1_000_000_000  # a session whose first record was sent so long after it was observed is of a replay
MAX_WINDOWS = 8  # for which a digest or records are waited for


@dataclass(frozen=True, slots=True)
class WindowScore:
    """The score of one window.

    Attributes:
        window_ns: its begin, Unix time in ns on the exporter's clock.
        records, expected: here, and there.
        completeness: from 0 to 1.
        occupancy_error: from 0 to 1, 1 if the sides differ in their PRBs; None if nothing was sampled on one.
        spectral_distance_db: None if nothing was sampled on a side, or they differ in their PRBs.
        age_ns: of the newest record of the window when it arrived, with what the two clocks differ by; None in a
            replay.
        kpm, kpm_gnb: by the twin's analysis and by the gNB, of the window before, as a KPM comes after its period; None
            where that is not known.
    """

    window_ns: int
    records: int
    expected: int
    completeness: float
    occupancy_error: float | None
    spectral_distance_db: float | None
    age_ns: int | None
    kpm: Kpm | None = None
    kpm_gnb: Kpm | None = None

    @property
    def parts(self) -> dict[str, float | None]:
        """Each part from 0 to 1; None is not known, and does not count."""
        distance = self.spectral_distance_db
        return {
            "completeness": self.completeness,
            "occupancy": None if self.occupancy_error is None else 1 - self.occupancy_error,
            "spectrum": None if distance is None else max(0.0, 1 - distance / SPECTRUM_ZERO_DB),
            "age": None if self.age_ns is None else age_part(self.age_ns),
            "kpm": kpm_part(self.kpm, self.kpm_gnb),
        }

    @property
    def score(self) -> float:
        """The least of the parts."""
        return min(part for part in self.parts.values() if part is not None)

    @property
    def heard(self) -> float:
        """The least of the parts that do not depend on what the twin makes of the records."""
        return min(part for name, part in self.parts.items() if part is not None and name != "kpm")

    def as_dict(self) -> dict[str, Any]:
        """All of it, for a log or a file."""
        kpms = {name: kpm and kpm.described() for name, kpm in (("kpm", self.kpm), ("kpm_gnb", self.kpm_gnb))}
        return asdict(self) | kpms | {"score": self.score, "parts": self.parts}

    @property
    def worst(self) -> str:
        """The name of the least part."""
        known = {name: part for name, part in self.parts.items() if part is not None}
        return min(known, key=known.__getitem__)


def age_part(age_ns: float) -> float:
    """The part of an age; see the module."""
    return min(1.0, max(0.0, (AGE_ZERO_S - age_ns / 1e9) / (AGE_ZERO_S - AGE_FULL_S)))


def kpm_part(kpm: Kpm | None, kpm_gnb: Kpm | None) -> float | None:
    """The part of two KPMs of one window; None if one is missing, or is of too few slots or of another carrier."""
    if kpm is None or kpm_gnb is None or kpm.n_prbs != kpm_gnb.n_prbs:
        return None
    usage, usage_gnb = kpm.usage, kpm_gnb.usage
    return None if usage is None or usage_gnb is None else 1 - abs(usage - usage_gnb)


def compare(digest: Digest, window: Window, n_prbs: int, first_prb: int, age_ns: int | None) -> WindowScore | None:
    """The score of a window whose records here are of ``n_prbs`` PRBs from ``first_prb``; None if neither side has any.

    Args:
        digest: of the exporter.
        window: the same window here.
        n_prbs, first_prb: PRBs here.
        age_ns: of the newest record here.
    """
    here, there = window.records, digest.records + digest.missed
    if not here and not there:
        return None
    completeness = min(here, there) / max(here, there)
    error = distance = None
    if not (window.sampled and digest.sampled):
        pass
    elif (n_prbs, first_prb) != (digest.settings.n_prbs, digest.settings.first_prb):
        error = 1.0
    else:
        power, occupied = window.spectrum(n_prbs, digest.threshold)
        shares = occupied / window.sampled - digest.occupied / digest.sampled
        error = float(np.abs(shares).mean())
        distance = float(np.sqrt(np.square(_db(power) - _db(digest.power)).mean()))
    return WindowScore(digest.window_ns, here, there, completeness, error, distance, age_ns if here else None)


def _db(power: Rows) -> Rows:
    """With the noise of rounding, so that PRBs that the RAN blanks do not count without end."""
    return np.asarray(10 * np.log10(power + np.float32(QUANTISATION)))


class Matching:
    """Matches the windows of one session here with their digests.

    A window is compared when its digest is here, and all of its records; or a record of a later window; or a digest
    that came `GRACE_NS` after its own.  That depends on what arrived, and in which order on each flow, not on when it
    is processed, so that a recording gives the same scores.  The window of the first record is left out: the exporter
    may have heard more of it.  KPMs are those of the window before: the gNB's if it came before the digest, and
    the twin's of the records that were analysed until then, which alone depends on the time of processing.

    Args:
        session: epoch of the exporter, for the twin's KPMs.
    """

    def __init__(self, session: int = 0) -> None:
        self._session = session
        self._n_prbs = self._first_prb = 0
        self._after_ns: int | None = None  # the begin of the last window that is not compared
        self._first_ns = 0  # the begin of the first of all, which may not be whole
        self._newest_ns = 0
        self._windows: OrderedDict[int, tuple[Window, int | None]] = OrderedDict()  # with the age of the last record
        self._digests: OrderedDict[int, tuple[Digest, int, Kpm | None]] = OrderedDict()  # with their arrival
        self._kpms: OrderedDict[int, Kpm] = OrderedDict()  # of the gNB, until their digests come
        self._usages: OrderedDict[int, Usage] = OrderedDict()  # by the twin's analysis

    def records(self, one: Observed, received_ns: int | None) -> list[WindowScore]:
        """Take in records that were observed at one time; returns the scores of windows that are complete by that.

        ``received_ns`` is Unix time here; None in a replay, of which the age says nothing.
        """
        observed_ns, records, power, first_prb = one
        begin_ns = begin_of(observed_ns)
        if power is not None and (power.shape[1], first_prb) != (self._n_prbs, self._first_prb):
            self._begin_anew()
            self._n_prbs, self._first_prb = power.shape[1], first_prb
        if self._after_ns is None:
            self._after_ns = self._first_ns = begin_ns
        if begin_ns <= self._after_ns:
            return []
        if begin_ns not in self._windows:
            self._windows[begin_ns] = Window(begin_ns), None
            _limit(self._windows)
        window, _ = self._windows[begin_ns]
        window.count(observed_ns, records)
        if power is not None:
            window.sample(power)
        self._windows[begin_ns] = window, None if received_ns is None else received_ns - observed_ns
        self._newest_ns = max(self._newest_ns, begin_ns)
        return self._scores(0) if self._digests else []

    def digest(self, digest: Digest, received_ns: int) -> list[WindowScore]:
        """Take in a digest; returns as `records`.

        An answer to a request is not compared.  One of an earlier window than the last tells that the clock there was
        set back: the windows begin anew.
        """
        if digest.answer:
            if self._after_ns is not None and digest.window_ns < self._after_ns:
                self._begin_anew()
        elif self._after_ns is not None and digest.window_ns > self._after_ns:
            self._digests[digest.window_ns] = digest, received_ns, self._kpms.get(digest.window_ns - WINDOW_NS)
            _limit(self._digests)
        return self._scores(received_ns)

    def kpm(self, kpm: Kpm) -> None:
        """Take in a KPM of the gNB; one whose period is no window is not compared."""
        if kpm.is_window and self._is_whole(kpm.begin_ns):
            self._kpms[kpm.begin_ns] = kpm
            _limit(self._kpms)

    def used(self, observed_ns: int, used: int, n_prbs: int) -> None:
        """Of a record that was analysed, so many of ``n_prbs`` PRBs carry traffic of UEs."""
        begin_ns = begin_of(observed_ns)
        if not self._is_whole(begin_ns):
            return
        usage = self._usages.get(begin_ns)
        if usage is None or usage.n_prbs != n_prbs:
            usage = self._usages[begin_ns] = Usage(n_prbs, begin_ns)
            _limit(self._usages)
        usage.add(observed_ns, used)

    def _begin_anew(self) -> None:
        """Drop the windows that are not yet compared; that of the next record is left out."""
        for places in (self._windows, self._digests, self._kpms, self._usages):
            places.clear()
        self._after_ns, self._newest_ns = None, 0

    def _scores(self, now_ns: int) -> list[WindowScore]:
        found = []
        for begin_ns, (digest, received_ns, kpm_gnb) in sorted(self._digests.items()):
            window, age_ns = self._windows.get(begin_ns, (Window(begin_ns), None))
            complete = window.records >= digest.records + digest.missed
            if not complete and self._newest_ns <= begin_ns and now_ns < received_ns + GRACE_NS:
                break
            del self._digests[begin_ns]
            self._windows.pop(begin_ns, None)
            self._after_ns = begin_ns
            score = compare(digest, window, self._n_prbs, self._first_prb, age_ns)
            if score is not None:
                kpm = self._analysed(begin_ns - WINDOW_NS, digest) if kpm_gnb else None
                found.append(replace(score, kpm=kpm, kpm_gnb=kpm_gnb))
        for begin_ns in [begin_ns for begin_ns in self._windows if begin_ns <= (self._after_ns or 0)]:
            del self._windows[begin_ns]
        return found

    def _is_whole(self, begin_ns: int) -> bool:
        """Whether KPMs of a window may be compared: all of it was heard, and no later one was compared."""
        return self._after_ns is not None and self._first_ns < begin_ns >= self._after_ns

    def _analysed(self, begin_ns: int, digest: Digest) -> Kpm | None:
        """The twin's KPM of a window; None if the records are not of the whole carrier."""
        usage = self._usages.get(begin_ns)
        if usage is None or usage.n_prbs != digest.settings.n_prbs_carrier:
            return None
        return usage.kpm(Source.TWIN, self._session)


def _limit(places: OrderedDict[int, Any]) -> None:
    if len(places) > MAX_WINDOWS:
        places.popitem(last=False)
