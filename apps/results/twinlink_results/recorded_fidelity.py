"""The fidelity of a twin's picture, from what its recording shows of flows ``spectrum``, ``digest`` and ``kpm``.

As the twin computed it (`twinlink.fidelity`), but for records that it dropped after they had arrived.  What it made of
the spectrum is not computed again: its KPMs are those that it sent.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from struct import Struct
from typing import Any

from twinlink.digest import FLOW as DIGEST
from twinlink.digest import Digest, observed
from twinlink.errors import MalformedPayload, TwinlinkError
from twinlink.fidelity import REPLAYED_NS, Matching, WindowScore
from twinlink.kpm import FLOW as KPM
from twinlink.kpm import Kpm, Source
from twinlink.recording.message_order import MessageOrder, Played

SPECTRUM = "spectrum"
FLOWS = SPECTRUM, DIGEST, KPM
_TIMES = Struct("<qq")  # before a payload that is held until those before it are there: sent, received


class RecordedFidelity:
    """Takes what one side received, in the order of the file.

    Attributes:
        scores: by session.
    """

    def __init__(self) -> None:
        self.scores: dict[int, list[WindowScore]] = {}
        self._order: dict[int, MessageOrder] = {}
        self._matching: dict[int, Matching] = {}
        self._replayed: dict[int, bool] = {}
        self._newest_ns = 0
        self._analysed: dict[tuple[int, int], Kpm] = {}  # the twin's, by session and window

    def take_sent(self, payload: bytes) -> None:
        """Take in a message of flow ``kpm`` that the recording side sent: a twin's, or an exporter's."""
        with suppress(MalformedPayload):
            kpm = Kpm.decode(payload)
            self._analysed[kpm.session, kpm.begin_ns] = kpm

    def take(self, flow: str, epoch: int, sequence: int, sent_ns: int, received_ns: int, payload: bytes) -> None:
        """Take in a message of one of `FLOWS`."""
        order = self._order.setdefault(epoch, MessageOrder())
        self._newest_ns = received_ns
        times = _TIMES.pack(sent_ns, received_ns)
        self._score(epoch, order.add(("received", flow, epoch), sequence, received_ns, times + payload))

    def end(self) -> None:
        """Nothing follows."""
        for epoch, order in self._order.items():
            self._score(epoch, order.rest(self._newest_ns))
        for epoch, scores in self.scores.items():
            self.scores[epoch] = [
                replace(one, kpm=self._analysed.get((epoch, one.kpm_gnb.begin_ns)) if one.kpm_gnb else None)
                for one in scores
            ]

    def _score(self, epoch: int, messages: Iterator[Played]) -> None:
        for _, flow, octets, _ in messages:
            if octets is None:
                continue
            sent_ns, received_ns = _TIMES.unpack_from(octets)
            try:
                found = list(self._scores(flow, epoch, sent_ns, received_ns, octets[_TIMES.size :]))
            except (MalformedPayload, TwinlinkError):  # the twin has counted it
                continue
            self.scores.setdefault(epoch, []).extend(found)

    def _scores(self, flow: str, epoch: int, sent_ns: int, received_ns: int, payload: bytes) -> Iterator[WindowScore]:
        matching = self._matching.get(epoch)
        if flow in (DIGEST, KPM):
            digest = Digest.decode(payload) if flow == DIGEST else Kpm.decode(payload)
            if matching is None:  # no record has come: the twin follows this session from its first one on
                return
            if isinstance(digest, Digest):
                yield from matching.digest(digest, received_ns)
            elif digest.source is Source.GNB:
                matching.kpm(digest)
            return
        for one in observed(payload):
            if matching is None:
                matching = self._matching[epoch] = Matching()
                self._replayed[epoch] = sent_ns - one.observed_ns > REPLAYED_NS
            yield from matching.records(one, None if self._replayed[epoch] else received_ns)


def as_list(found: RecordedFidelity, nodes: dict[int, str | None]) -> list[dict[str, Any]]:
    """Each session with a score, for a file; ``nodes`` are their names."""
    return [
        {"node": nodes.get(epoch), "epoch": f"{epoch:016x}", "windows": [score.as_dict() for score in scores]}
        for epoch, scores in sorted(found.scores.items())
        if scores
    ]
