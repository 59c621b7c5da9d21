"""Whether the twin's picture is that of the network: the score of each window, an alarm, and re-synchronisation.

| state     | when                                                                                              |
|-----------|---------------------------------------------------------------------------------------------------|
| not known | the exporter sends no digests, or no window was compared yet: decisions leave                     |
| good      | the score was at least the limit since                                                            |
| low       | it fell below the limit; until a window that was compared since, and the age, are half the way    |
|           | from the limit to 1, and its KPM a quarter: no decision leaves                                    |

The score is that of the last window (`twinlink.fidelity`) or the part of the present age, whichever is less; 0 if no
digest came for `SILENT_NS`.  While it is low the exporter is asked for a digest, which says what it sends, and whether
its clock was set back.  If level or occupancy were wrong, the detector begins anew when a window is good but for its
KPM, which the detector makes: it would be wrong for long.  Of a replay scores are computed, and nothing is held back.

The twin's KPM of each window that was compared with one of the gNB leaves on flow ``kpm``: a recording has both.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import twinlink
from twinlink.appkit.journal import Journal
from twinlink.digest import Digest, DigestRequest, Observed, Rows, Settings, is_sampled
from twinlink.fidelity import Matching, WindowScore, age_part
from twinlink.kpm import Kpm, Source
from twinlink.stats import ClockOffset

from ..blocks.observer import Record

LIMIT = 0.9
SILENT_NS = 3_000_000_000
ASK_NS = 5_000_000_000  # between two requests: a good score takes up to two seconds
_OF_LEVEL = "occupancy", "spectrum"
_REASONS = {
    "completeness": "{one.records} of {one.expected} records are here",
    "occupancy": "the occupied shares of the PRBs differ by {one.occupancy_error:.3f} in the mean",
    "spectrum": "the spectrum is {one.spectral_distance_db:.1f} dB from the exporter's",
    "age": "records came {age_s:.2f} s after they were observed",
    "kpm": "UEs use {one.kpm.usage:.3f} of the uplink's PRBs by the spectrum, and {one.kpm_gnb.usage:.3f} by the gNB",
}


@dataclass(slots=True)
class _Session:
    """What is known of the session that is followed.

    Attributes:
        age: of the newest record when it was analysed, and when that was, in ns; None before it.
        digest_mono_ns: arrival of the newest digest.
        compared_mono_ns: when the last window was compared.
        low_since_mono_ns: since when the score is low; None: it is not.
        why_low: what was said when it became low.
        level_wrong: whether level or occupancy of a window were wrong since.
        ask_mono_ns: time of the next request.
    """

    epoch: int | None = None
    node: str = ""
    replayed: bool = False
    matching: Matching = field(default_factory=Matching)
    age: tuple[int, int] | None = None
    digest_mono_ns: int = 0
    compared_mono_ns: int | None = None
    low_since_mono_ns: int | None = None
    why_low: str = ""
    level_wrong: bool = False
    ask_mono_ns: int = 0

    def age_ns(self, mono_ns: int) -> int:
        """No record is younger than the time since it was analysed: the exporter's clock may be ahead."""
        return max(self.age[0], 0) + mono_ns - self.age[1] if self.age else 0


class Fidelity:
    """Of the session that the twin follows; its methods may be called from any thread.

    Args:
        journal: receives the events.
        ask: sends a message of flow ``digest-request``; raises TwinlinkError.
        send_kpm: sends a message of flow ``kpm``; raises TwinlinkError.
        limit: score below which no decision leaves; 0: none is held back.
        clock: what is known of the offset of a session's clock, or None.

    Attributes:
        windows: number of windows compared.
        last: of them, or None.
        least, total: the least score, and the sum of all.
        alarms: how often the score fell below the limit.
        asked, answered: requests of a digest, and answers.
        anew: whether the detector is to begin anew; the twin sets it back.
    """

    def __init__(
        self,
        journal: Journal,
        ask: Callable[[bytes], object],
        send_kpm: Callable[[bytes], object],
        limit: float = LIMIT,
        clock: Callable[[int], ClockOffset | None] = lambda epoch: None,
    ) -> None:
        self.windows = self.alarms = self.asked = self.answered = 0
        self.least: float | None = None
        self.total = 0.0
        self.last: WindowScore | None = None
        self.anew = False
        self._journal, self._ask, self._send_kpm, self._limit, self._clock = journal, ask, send_kpm, limit, clock
        self._compared: list[Kpm] = []  # by the twin, to be sent
        self._good = limit + (1 - limit) / 2
        self._good_kpm = limit + (1 - limit) / 4  # an estimate: undistorted windows had less than `_good`
        self._lock = threading.RLock()
        self._session = _Session()

    def follow(self, epoch: int, node: str, replayed: bool) -> None:
        """The twin follows this session from now on, that of a replay or not; nothing is known of it yet."""
        with self._lock:
            self._session = _Session(epoch, node, replayed, Matching(epoch))

    def add(self, records: list[Record], power: Rows) -> None:
        """Take in records of the session, in order, and the power of their PRBs in LSB^2, ``(records, n_prbs)``."""
        now_ns, mono_ns = time.time_ns(), time.monotonic_ns()
        with self._lock:
            self._session.age = now_ns - records[-1].observed_ns, mono_ns
            for k, record in enumerate(records):
                sampled = is_sampled(record.observed_ns, record.place is not None)
                one = Observed(record.observed_ns, 1, power[k : k + 1] if sampled else None, record.first_prb)
                received_ns = None if self._session.replayed else record.received_ns
                self._take(self._session.matching.records(one, received_ns), mono_ns)
        self._send_kpms()

    def analysed(self, records: list[Record], ue: NDArray[np.bool_]) -> None:
        """Take in which PRBs of records that were added carry traffic of UEs, ``(records, n_prbs)``."""
        with self._lock:
            for record, used in zip(records, ue.sum(axis=1).tolist(), strict=True):
                self._session.matching.used(record.observed_ns, used, ue.shape[1])

    def kpm(self, message: twinlink.Message) -> None:
        """Take in a message of flow ``kpm``: of the exporter, or of another twin."""
        try:
            kpm = Kpm.decode(message.payload)
        except twinlink.MalformedPayload as error:
            self._journal.complaint("malformed-kpm", f"a message on flow {message.flow} cannot be decoded: {error}")
            return
        with self._lock:
            if message.epoch == self._session.epoch and kpm.source is Source.GNB:
                self._session.matching.kpm(kpm)

    def digest(self, message: twinlink.Message) -> None:
        """Take in a message of flow ``digest``."""
        try:
            digest = Digest.decode(message.payload)
        except twinlink.MalformedPayload as error:
            self._journal.complaint("malformed-digest", f"a message on flow {message.flow} cannot be decoded: {error}")
            return
        mono_ns = time.monotonic_ns()
        with self._lock:
            if message.epoch != self._session.epoch:
                return
            self._session.digest_mono_ns = mono_ns
            if digest.answer:
                self._answered(digest.settings)
            self._take(self._session.matching.digest(digest, message.received_ns), mono_ns)
        self._send_kpms()

    def score(self, mono_ns: int | None = None) -> float | None:
        """The score now; None is not known."""
        mono_ns = time.monotonic_ns() if mono_ns is None else mono_ns
        with self._lock:
            if self.last is None or self._session.compared_mono_ns is None:
                return None
            if self._session.replayed:
                return self.last.score
            if mono_ns - self._session.digest_mono_ns > SILENT_NS:
                return 0.0
            return min(self.last.score, age_part(self._session.age_ns(mono_ns)))

    @property
    def low(self) -> bool:
        """Whether no decision may leave, as of now."""
        with self._lock:
            self._judge(time.monotonic_ns())
            return self._session.low_since_mono_ns is not None

    @property
    def why_low(self) -> str:
        """What was said when the score became low."""
        return self._session.why_low

    def look(self) -> None:
        """Judge by the time that has passed, and ask the exporter if need be; call it several times a second."""
        mono_ns = time.monotonic_ns()
        with self._lock:
            if not self.low or mono_ns < self._session.ask_mono_ns:
                return
            self._session.ask_mono_ns = mono_ns + ASK_NS
            self.asked += 1
            node, reason = self._session.node, self._reason(mono_ns)
        try:
            self._ask(DigestRequest(node, reason).encode())
            self._journal.event("digest-asked", f"asked {node or 'the exporter'} for a digest: {reason}", node=node)
        except twinlink.TwinlinkError as error:
            self._journal.event("digest-asked", f"the exporter was not asked for a digest: {error}", node=node)

    def described(self) -> dict[str, Any]:
        """All of it, as plain data; None is not known."""
        with self._lock:
            return {
                "score": self.score(),
                "low": self._session.low_since_mono_ns is not None,
                "windows": self.windows,
                "least": self.least,
                "mean": self.total / self.windows if self.windows else None,
                "parts": self.last.parts if self.last else None,
                "alarms": self.alarms,
                "asked": self.asked,
                "answered": self.answered,
            }

    def summary(self) -> str:
        """A part of a sentence."""
        if not self.windows:
            return "fidelity not known"
        return f"fidelity {self.total / self.windows:.3f} in the mean of {self.windows} s, {self.least:.3f} at least"

    def _send_kpms(self) -> None:
        """Send the twin's KPMs with which the gNB's were compared; without the lock, which the link's thread takes."""
        with self._lock:
            kpms, self._compared = self._compared, []
        try:
            for kpm in kpms:
                self._send_kpm(kpm.encode())
        except twinlink.TwinlinkError as error:
            self._journal.complaint("kpm-not-sent", f"the twin's KPM was not sent: {error}")

    # The caller holds the lock

    def _answered(self, settings: Settings) -> None:
        self.answered += 1
        text = f"{self._session.node or 'the exporter'} states what it sends"
        self._journal.event("digest-answered", text, node=self._session.node, **asdict(settings))

    def _take(self, scores: list[WindowScore], mono_ns: int) -> None:
        for one in scores:
            score, parts = one.score, one.parts
            self.windows += 1
            self.last, self._session.compared_mono_ns = one, mono_ns
            self.total += score
            if one.kpm and not self._session.replayed:
                self._compared.append(one.kpm)
            self.least = score if self.least is None else min(self.least, score)
            if any((part := parts[name]) is not None and part < self._limit for name in _OF_LEVEL):
                self._session.level_wrong = True
            elif self._session.level_wrong and not self._session.replayed and one.heard >= self._good:
                self._session.level_wrong = False
                self.anew = True
                self._journal.event("detector-anew", "levels and occupancy are right again: the detector begins anew")
            fields = one.as_dict() | {"clock_offset_ns": self._clock(self._session.epoch or 0)}
            self._journal.routine("fidelity", f"fidelity {score:.3f}, by {one.worst}", **fields)
        if scores:
            self._judge(mono_ns)

    def _judge(self, mono_ns: int) -> None:
        score = self.score(mono_ns)
        if score is None or self._session.replayed:
            return
        since_ns = self._session.low_since_mono_ns
        if since_ns is None and score < self._limit:
            self._session.low_since_mono_ns = mono_ns
            self._session.ask_mono_ns = mono_ns
            self.alarms += 1
            why = self._session.why_low = f"fidelity {score:.3f} is below {self._limit:g}: {self._reason(mono_ns)}"
            text = f"{why}; no decision leaves until"
            parts = self.last.parts if self.last else None
            text += f" it is {self._good:g} ({self._good_kpm:g} by KPMs)"
            self._journal.event("fidelity-low", text, score=score, parts=parts)
        elif since_ns is not None and self._is_good(mono_ns) and (self._session.compared_mono_ns or 0) > since_ns:
            self._session.low_since_mono_ns = None
            text = f"fidelity is {score:.3f} again, after {(mono_ns - since_ns) / 1e9:.1f} s: decisions leave"
            self._journal.event("fidelity-good", text, score=score, low_ns=mono_ns - since_ns)

    def _is_good(self, mono_ns: int) -> bool:
        """Whether the score is high enough for decisions to leave again."""
        score, last = self.score(mono_ns), self.last
        if score is None or last is None:
            return False
        return score >= self._good_kpm and min(last.heard, age_part(self._session.age_ns(mono_ns))) >= self._good

    def _reason(self, mono_ns: int) -> str:
        """Which part is the least, with its figure."""
        last = self.last
        if last is None or mono_ns - self._session.digest_mono_ns > SILENT_NS:
            return f"no digest came for {SILENT_NS / 1e9:g} s"
        if age_part(self._session.age_ns(mono_ns)) <= last.score and self._session.age:
            return f"the newest record is {self._session.age_ns(mono_ns) / 1e9:.2f} s old"
        return _REASONS[last.worst].format(one=last, age_s=(last.age_ns or 0) / 1e9)
