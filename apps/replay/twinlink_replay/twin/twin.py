"""The twin: analyses records, writes files and log lines, and sends PRB blocks."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

import twinlink
from twinlink.appkit.journal import Journal
from twinlink.control import PrbBlock, PrbBlockResult
from twinlink.digest import symbol_power
from twinlink.events import Event, PeerDown, PeerUp, SyncChanged
from twinlink.prbs import format_prbs
from twinlink.signed_payload import Refusal
from twinlink.sync import State

from ..blocks.observer import Record
from ..detection.detector import Detector, Smoothed
from ..detection.features import prb_features, subcarrier_power
from ..detection.free_prbs import is_loud
from ..detection.noise_floor import NoiseFloor
from .authentication import Authentication
from .controller import Change, Controller, Held
from .fidelity import Fidelity
from .free_ranges import FreeRanges
from .link_journal import log_event
from .recorded_time import RecordedTime, is_replayed, session_of
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
        send: sends a decision to the exporter with this name and session, and its validity in ms; raises TwinlinkError.
        sync: of the records' flow.
        recording: receives records and answers; None to record nothing.
        node, session: of this side of the link, for the ids of blocks.
        validity_ms, protected, control: as of `Controller`.
        count: number of records after which to stop, or None.
        fidelity: whether decisions may leave.
        authentication: signs decisions and checks results; None: neither.

    Attributes:
        records: number of records analysed.
        foreign: number of records of another session or carrier than those that are followed.
        proposed, installed, rejected: number of PRB blocks and of their results.
        refused_results: number of results that do not come from a trusted exporter.
        left_out: number of records that had arrived when `finish` was called, and were not analysed.
        last_ns: monotonic time of the last record, None before the first.
        out_of_sync: how often the records became out of sync.
        held_back: number of lists of PRBs that were due and did not leave, because the fidelity was low.
        fidelity: as given.
        free_ranges: what the gNB's MAC left free, if the exporter sends it.
        done: set when ``count`` is reached.
        watcher: is shown what is made of records; None: there is none.
        make_detector: makes the detector of records with so many PRBs; another one may take its place before the first.
    """

    def __init__(
        self,
        journal: Journal,
        send: Callable[[bytes, str, int | None, int], object],
        sync: twinlink.Sync,
        recording: Recording | None,
        *,
        node: str,
        session: str,
        validity_ms: int,
        protected: frozenset[int],
        control: bool,
        count: int | None,
        fidelity: Fidelity,
        authentication: Authentication | None = None,
    ) -> None:
        self.records = 0
        self.foreign = 0
        self.proposed = self.installed = self.rejected = 0
        self._last_proposed: tuple[str, tuple[int, ...]] | None = None
        self._last_result: tuple[str, str, tuple[int, ...]] | None = None
        self.refused_results = 0
        self.out_of_sync = self.held_back = 0
        self.free_ranges = FreeRanges()
        self.left_out = 0
        self.last_ns: int | None = None
        self.done = threading.Event()
        self.watcher: Watcher | None = None
        self.make_detector: Callable[[int], Detector] = Detector
        self._journal, self._send, self._sync, self._recording = journal, send, sync, recording
        self.fidelity, self._authentication = fidelity, authentication or Authentication()
        self._node, self._session = node, session
        self._settings = validity_ms, protected, control
        self._reported_another_twin = not control  # a twin that only observes may run beside one that decides
        self._count = count
        self._source_selection = SourceSelection()
        self._reported_foreign: set[int] = set()  # sessions
        self._reported_power = False
        self._detector: Detector | None = None
        self._floor: NoiseFloor | None = None  # of records of power
        self._controller: Controller | None = None
        self._followed: int | None = None  # the session of the last record
        self._recorded_time: RecordedTime | None = None  # of a replay
        # Keeps decisions in order: results and changes of sync arrive on the link's thread.
        self._lock = threading.Lock()
        self._analysis = threading.Lock()  # held by the flowgraph's thread in `add`, and by `finish`
        self._finishing = False

    @property
    def analysing(self) -> bool:
        """Whether records are being analysed: on a busy machine those of one `add` take seconds."""
        return self._analysis.locked()

    @property
    def follows_replay(self) -> bool:
        """Whether the records are those of a replay."""
        return self._recorded_time is not None

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
        ours = self._select(records)
        if not ours:
            return
        if ours[-1].epoch != self._followed:
            self._follow(ours[-1])
        assert self._detector
        if ours[0].power is not None:
            self._take_power(ours)
            return
        samples = np.stack([record.samples for record in ours])
        self.fidelity.add(ours, symbol_power(samples))
        self._begin_detector_anew()
        features = prb_features(subcarrier_power(samples), samples)
        answer = self._detector.add(features)
        smoothed = self._detector.smoothed()
        interfered = answer.interfered
        free = self._free(ours)
        if free is not None and self._detector.floor:
            interfered = interfered | (is_loud(features.power, self._detector.floor) & free)
        analysed_ns = time.time_ns()
        if self.watcher:
            self.watcher.on_analysed(ours, answer.occupied, interfered)
        for k in range(len(ours)):
            self._decide(self.records + k, interfered[k], ours[k])
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
        analysed_ns = time.time_ns()
        if self.watcher:
            self.watcher.on_analysed(records, loud, interfered)
        for k, record in enumerate(records):
            self._decide(self.records + k, interfered[k], record)
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
        if self._detector and not (replayed or self._recorded_time):
            return
        self._make_detector(record.n_prbs)
        session = session_of(self._node, record) if replayed else self._session
        with self._lock:
            self._recorded_time = RecordedTime(self._sync.thresholds) if replayed else None
            self._controller = Controller(record.n_prbs, session, *self._settings, first_prb=record.first_prb)
        if replayed:
            text = "the records are a replay: they are analysed one by one, and decided on by the time in them"
            self._journal.event("replay", text, observed_ns=record.observed_ns, session=session)
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

    def _decide(self, index: int, interfered: NDArray[np.bool_], record: Record) -> None:
        assert self._controller
        holds = self.fidelity.low  # before the time is taken: a decision is not older than that it may leave
        with self._lock:
            if self._recorded_time:
                now_ns, monotonic_ns, in_sync = self._recorded_now(self._recorded_time, record)
            else:
                now_ns, monotonic_ns = time.time_ns(), time.monotonic_ns()
                old = now_ns - record.sent_ns > self._sync.thresholds.out_after * 1e9  # a backlog; newer ones follow
                in_sync = self._sync.state is State.IN_SYNC and not old
            for item in self._controller.observe(interfered, now_ns, monotonic_ns, in_sync, holds):
                if isinstance(item, Change):
                    self._report_change(item, index)
                elif isinstance(item, Held):
                    self._report_held(item)
                else:
                    self._propose(item)

    def _recorded_now(self, recorded: RecordedTime, record: Record) -> tuple[int, int, bool]:
        """Unix time and monotonic time of a record that is replayed, and whether the twin was in sync.

        What `link_event` does live when sync is lost is done here.
        """
        recorded.take(record)
        if recorded.lapsed_ns:
            self._withdraw(*recorded.lapsed_ns)
        if not recorded.in_sync:
            self._withdraw(recorded.wall_ns, recorded.monotonic_ns)
        return recorded.wall_ns, recorded.monotonic_ns, recorded.in_sync

    def _withdraw(self, wall_ns: int, monotonic_ns: int) -> None:
        """The caller holds the lock."""
        if self._controller and (block := self._controller.withdraw(wall_ns, monotonic_ns)):
            self._propose(block)

    def _report_change(self, change: Change, index: int) -> None:
        if self.watcher:
            self.watcher.on_interference(change.prbs)
        if change.prbs:
            text = f"interference on PRBs {format_prbs(change.prbs)} (record {index})"
            self._journal.event("interference", text, prbs=change.prbs, first_record=index)
        else:
            self._journal.event("interference-ended", f"interference has ended (record {index})", record=index)

    def _report_held(self, held: Held) -> None:
        self.held_back += 1
        what = f"a block of PRBs {format_prbs(held.prbs)}" if held.prbs else "the end of the block"
        text = f"{what} is held back: the twin's picture is not that of the network (event fidelity-low)"
        self._journal.event("decision-held", text, prbs=held.prbs)

    def _propose(self, block: PrbBlock) -> None:
        epoch = self._source_selection.epoch
        node = self._source_selection.node(epoch)
        try:
            self._send(self._authentication.sign(block.encode(), node, epoch), node, epoch, block.validity_ms)
        except twinlink.TwinlinkError as error:
            self._journal.event("control-not-sent", f"PRB block {block.id} was not sent: {error}", id=block.id)
            return
        self.proposed += 1
        renews, self._last_proposed = self._last_proposed == (block.id, block.prbs), (block.id, block.prbs)
        what = f"blocking PRBs {format_prbs(block.prbs)}" if block.prbs else "to block no PRB any more"
        log = self._journal.routine if renews else self._journal.event
        log(
            "proposed",
            f"proposed {what} for {block.validity_ms} ms ({block.id})",
            time_ns=block.issued_ns,
            id=block.id,
            prbs=block.prbs,
            validity_ms=block.validity_ms,
            reason=block.reason,
        )

    def result(self, message: twinlink.Message) -> None:
        """Take in a message of flow ``control-result``."""
        payload = self._authentication.check(message)
        if isinstance(payload, Refusal):
            self.refused_results += 1
            text = f"a result of {message.node or 'a sender that has not said hello'} does not count: {payload.text}"
            self._journal.complaint("result-refused", text, rule=payload.rule, node=message.node)
            return
        try:
            result = PrbBlockResult.decode(payload)
        except twinlink.MalformedPayload as error:
            self._journal.event("malformed-result", f"a message on flow {message.flow} cannot be decoded: {error}")
            return
        if self._controller and message.epoch == self._source_selection.epoch:  # other gNBs receive the blocks, too
            if self._recorded_time:
                return  # it answers the twin that was recorded
            with self._lock:
                self._controller.result(result)
            if not self._reported_another_twin and self._controller.shows_another_twin(result):
                self._reported_another_twin = True
                text = f"another twin decides for {message.node}, which obeys one at a time ({result.id})"
                self._journal.event("another-twin", f"{text}: start all but one with --no-control", id=result.id)
        if self._controller and not self._controller.is_own(result):
            return
        self.installed += result.status == "installed"
        self.rejected += result.status == "rejected"
        last, self._last_result = self._last_result, (result.id, result.status, result.prbs)
        log = self._journal.routine if last == self._last_result else self._journal.event
        why = f" ({result.reason})" if result.reason else ""
        log(
            "block-result",
            f"PRB block {result.id} is {result.status}{why}: PRBs {format_prbs(result.prbs) or 'none'} are blocked",
            id=result.id,
            status=result.status,
            prbs=result.prbs,
            installed_ns=result.time_ns,
            received_ns=message.received_ns,
            reason=result.reason,
            e3=asdict(result.e3) if result.e3 else None,
        )

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
            with self._lock:
                if self._recorded_time is None:
                    self._withdraw(time.time_ns(), time.monotonic_ns())

    def finish(self) -> None:
        """Smooth the buffered records, and write the files, once the batch at hand is analysed; no other one is."""
        self._finishing = True
        with self._analysis:
            if self._recording:
                if self._detector:
                    self._recording.add_smoothed(self._detector.finish())
                self._recording.close()
