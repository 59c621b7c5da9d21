"""The twin: analyses records, writes files and log lines, and has PRB blocks decided on."""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

import twinlink
from twinlink.appkit.journal import Journal
from twinlink.digest import symbol_power
from twinlink.events import Event, PeerDown, PeerUp, SyncChanged
from twinlink.prbs import format_prbs
from twinlink.sync import State

from ..blocks.observer import Record
from ..detection.detector import Detector, Smoothed
from ..detection.features import prb_features, subcarrier_power
from ..detection.free_prbs import is_loud
from ..detection.noise_floor import NoiseFloor
from .controller import Change
from .decisions import Decisions
from .fidelity import Fidelity
from .free_ranges import FreeRanges
from .link_journal import log_event
from .recorded_time import is_replayed
from .recording import Recording
from .source_selection import Carrier, SourceSelection

BATCH = 16  # records analysed at once, at most; records that arrive one by one are analysed one by one


class Watcher(Protocol):
    """Is shown what a twin makes of records; called on its threads."""

    def on_interference(self, prbs: Sequence[int]) -> None:
        """Interference is found on these PRBs from now on."""

    def on_analysed(self, records: list[Record], used: NDArray[np.bool_], interfered: NDArray[np.bool_]) -> None:
        """Which PRBs are used, and which interfered; both of shape ``(records, n_prbs)``."""


class Twin:
    """Analyses records in the order of arrival and closes the control loop.

    Args:
        journal: receives the events.
        decisions: takes the answers.
        recording: receives records and answers; None to record nothing.
        count: number of records after which to stop, or None.
        fidelity: whether decisions may leave.

    Attributes:
        records: number of records analysed.
        foreign: number of records of another session or carrier than those that are followed.
        left_out: number of records that had arrived when `finish` was called, and were not analysed.
        last_ns: monotonic time of the last record, None before the first.
        out_of_sync: how often the records became out of sync.
        decisions, fidelity: as given.
        free_ranges: what the gNB's MAC left free, if the exporter sends it.
        done: set when ``count`` is reached.
        watcher: is shown what is made of records; None: there is none.
        make_detector: makes the detector of records with so many PRBs; another one may take its place before the first.
    """

    def __init__(
        self, journal: Journal, decisions: Decisions, recording: Recording | None, count: int | None, fidelity: Fidelity
    ) -> None:
        self.records = self.foreign = self.out_of_sync = self.left_out = 0
        self.free_ranges = FreeRanges()
        self.last_ns: int | None = None
        self.done = threading.Event()
        self.watcher: Watcher | None = None
        self.make_detector: Callable[[int], Detector] = Detector
        self.decisions, self.fidelity = decisions, fidelity
        self._journal, self._recording = journal, recording
        self._count = count
        self._source_selection = SourceSelection()
        self._reported_foreign: set[int] = set()  # sessions
        self._reported_power = False
        self._detector: Detector | None = None
        self._floor: NoiseFloor | None = None  # of records of power
        self._followed: int | None = None  # the session of the last record
        self._analysis = threading.Lock()  # held by the flowgraph's thread in `add`, and by `finish`
        self._finishing = False

    @property
    def analysing(self) -> bool:
        """Whether records are being analysed: on a busy machine those of one `add` take seconds."""
        return self._analysis.locked()

    @property
    def follows_replay(self) -> bool:
        """Whether the records are those of a replay."""
        return self.decisions.follows_replay

    def add(self, records: list[Record]) -> None:
        """Analyse records from the flowgraph, in order."""
        with self._analysis:
            if self._count is not None:
                records = records[: self._count - self.records]
            start = 0
            while start < len(records):
                if self._finishing:
                    self.left_out += len(records) - start
                    return
                self.last_ns = time.monotonic_ns()
                # What the detector says of records depends on how many it gets at once.
                end = start + (1 if is_replayed(records[start]) else BATCH)
                self._analyse(records[start:end])
                start = end
            if self._count is not None and self.records >= self._count:
                self.done.set()

    def _analyse(self, records: list[Record]) -> None:
        for _, ours in groupby(self._select(records), key=attrgetter("epoch")):
            self._analyse_session([*ours])

    def _analyse_session(self, ours: list[Record]) -> None:
        if ours[0].epoch != self._followed:
            self._follow(ours[0])
        assert self._detector
        if ours[0].power is not None:
            self._take_power(ours)
            return
        samples = np.stack([record.samples for record in ours])
        self.fidelity.add(ours, symbol_power(samples))
        self._begin_detector_anew()
        features = prb_features(subcarrier_power(samples), samples)
        answer = self._detector.add(features)
        interfered = answer.interfered
        free, ue = self._free(ours), answer.ue
        if free is not None and self._detector.floor:
            interfered = interfered | (is_loud(features.power, self._detector.floor) & free)
            ue = ue & ~free
        self.fidelity.analysed(ours, ue)
        analysed_ns = time.time_ns()
        if self.watcher:
            self.watcher.on_analysed(ours, answer.occupied, interfered)
        self.decisions.trials.add(ours, answer.occupied | interfered, interfered)
        self._decide(ours, interfered, ue)
        # What no decision waits for.
        self.decisions.trials.run_ahead()
        smoothed = self._detector.smoothed()
        if self._recording:
            self._recording.add(ours, features.power, interfered, analysed_ns, free)
            self._recording.add_smoothed(smoothed)
        self.records += len(ours)

    def _take_power(self, records: list[Record]) -> None:
        """Records without samples, in which interference is found only where the MAC left PRBs free."""
        assert self._floor
        if not self._reported_power:
            self._reported_power = True
            text = (
                "the exporter sends power, not I/Q: interference is found only in PRBs that the gNB's MAC left free, "
                "which needs twinlink-exporter --sensing"
            )
            self._journal.event("power-only", text)
        power = np.stack([record.power for record in records if record.power is not None])
        self.fidelity.add(records, power)
        self._begin_detector_anew()
        free = self._free(records)
        loud = is_loud(power, self._floor.add(power))
        interfered = np.zeros(power.shape, np.bool_) if free is None else loud & free
        ue = loud & ~interfered
        analysed_ns = time.time_ns()
        if self.watcher:
            self.watcher.on_analysed(records, loud, interfered)
        self.decisions.trials.add(records, loud, interfered)
        self._decide(records, interfered, ue)
        self.decisions.trials.run_ahead()
        if self._recording:
            self._recording.add(records, power, interfered, analysed_ns, free)
            self._recording.add_smoothed([Smoothed(self.records, interfered, loud)])
        self.records += len(records)

    def _free(self, records: list[Record]) -> NDArray[np.bool_] | None:
        """The PRBs that the MAC left free, ``(records, n_prbs)``, False where that is not known; None if of none is."""
        known = [self.free_ranges.of(record) for record in records]
        if all(free is None for free in known):
            return None
        nothing = np.zeros(records[0].n_prbs, np.bool_)
        return np.stack([nothing if free is None else free for free in known])

    def _follow(self, record: Record) -> None:
        """Another session is followed: a replay is analysed as if it were the first, and what follows it, too."""
        self._followed, replayed = record.epoch, is_replayed(record)
        of_replay = replayed or self.follows_replay
        self.fidelity.follow(record.epoch, self._source_selection.node(record.epoch), of_replay)
        if self._detector and not of_replay:
            return
        self.decisions.follow(record, self._source_selection, replayed)
        self._make_detector(record.n_prbs)  # which may be another one for a replay
        self._journal.event(
            "first-record",
            f"first record: {Carrier.of(record)}",
            n_prbs=record.n_prbs,
            scs_hz=record.scs_hz,
            centre_hz=record.centre_hz,
            sequence=record.sequence,
        )

    def _make_detector(self, n_prbs: int) -> None:
        if self._recording and self._detector:
            self._recording.add_smoothed(self._detector.finish())
        # With settle=False, decisions could differ between runs with and without a recording: see `Detector`.
        self._detector, self._floor = self.make_detector(n_prbs), NoiseFloor(n_prbs)

    def _begin_detector_anew(self) -> None:
        """Levels were wrong until now: the noise floor, which rises slowly, and all that was found with it is wrong."""
        if self.fidelity.anew and self._detector:
            self.fidelity.anew = False
            self._make_detector(self._detector.n_prbs)

    def _select(self, records: list[Record]) -> list[Record]:
        """The records of the session that is followed; of each other session, one record is reported."""
        ours = []
        now_ns = time.monotonic_ns()
        for record in records:
            before = self._source_selection.epoch
            if self._source_selection.accepts(record, now_ns):
                ours.append(record)
                self._report_switch(before)
            else:
                self.foreign += 1
                self._report_foreign(record)
        return ours

    def _report_switch(self, before: int | None) -> None:
        epoch = self._source_selection.epoch
        old, node = self._source_selection.node(before), self._source_selection.node(epoch)
        if before not in (None, epoch) and old != node:
            self._journal.event("following", f"{old} is gone; following {node} from here on", node=node, epoch=epoch)

    def _report_foreign(self, record: Record) -> None:
        if record.epoch in self._reported_foreign:
            return
        self._reported_foreign.add(record.epoch)
        selection, carrier = self._source_selection, Carrier.of(record)
        node, ours = selection.node(record.epoch), selection.node(selection.epoch)
        sender = node or "another sender"
        text = f"records of {sender} are skipped while {ours or 'the first one'} is followed: one gNB at a time"
        if carrier != selection.carrier:
            text = (
                f"records of another carrier ({carrier}) of {sender} are skipped: one carrier at a time;"
                " restart twinlink-replay to follow another one"
            )
        self._journal.event("foreign", text, node=node or None, epoch=record.epoch, **carrier._asdict())

    def _decide(self, records: list[Record], interfered: NDArray[np.bool_], ue: NDArray[np.bool_]) -> None:
        """Of records that came at once, with the newest."""
        for k, record in enumerate(records):
            changed = partial(self._report_change, self.records + k)
            self.decisions.decide(interfered[k], ue[k], record, changed, waits=k < len(records) - 1)

    def _report_change(self, index: int, change: Change) -> None:
        if self.watcher:
            self.watcher.on_interference(change.prbs)
        if change.prbs:
            text = f"interference on PRBs {format_prbs(change.prbs)} (record {index})"
            self._journal.event("interference", text, prbs=change.prbs, first_record=index)
        else:
            self._journal.event("interference-ended", f"interference has ended (record {index})", record=index)

    def digest(self, message: twinlink.Message) -> None:
        """Take in a message of flow ``digest``."""
        self.fidelity.digest(message)
        self.decisions.look()

    def look(self) -> None:
        """Judge by the time that has passed; call it several times a second."""
        self.fidelity.look()
        self.decisions.look()

    def sensing(self, message: twinlink.Message) -> None:
        """Take in a message of flow ``sensing``."""
        try:
            self.free_ranges.take(message)
        except twinlink.MalformedPayload as error:
            self._journal.complaint("malformed-sensing", f"a message on flow {message.flow} cannot be decoded: {error}")
            return
        if self.free_ranges.slots == 1:
            text = "the exporter sends what the gNB's MAC left free: more power than noise there is interference"
            self._journal.event("sensing", text, node=message.node)

    def link_event(self, event: Event) -> None:
        """Take in an event of the link."""
        if isinstance(event, PeerUp):
            self._source_selection.up(event.node, event.epoch)
        elif isinstance(event, PeerDown):
            self._source_selection.down(event.epoch, event.reason, time.monotonic_ns())
        log_event(self._journal, event)
        if isinstance(event, SyncChanged) and event.state == State.OUT_OF_SYNC.value:
            self.out_of_sync += 1
            self.decisions.out_of_sync()

    def finish(self) -> None:
        """Smooth the buffered records, and write the files, once the batch at hand is analysed; no other one is."""
        self._finishing = True
        with self._analysis:
            if self._recording:
                if self._detector:
                    self._recording.add_smoothed(self._detector.finish())
                self._recording.close()
