"""The twin's decisions: made from the answers about records, signed, sent, followed, and taken back if need be."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

import twinlink
from twinlink.appkit.journal import Journal
from twinlink.control import UNREAD, PrbBlock, PrbBlockResult
from twinlink.prbs import format_prbs
from twinlink.signed_payload import Refusal
from twinlink.story import TAKEN_BACK
from twinlink.sync import State

from ..blocks.observer import Record
from .authentication import Authentication
from .controller import OUT_OF_SYNC, Change, Controller, Held
from .decision_path import DecisionPath
from .fidelity import Fidelity
from .recorded_time import RecordedTime, session_of
from .source_selection import SourceSelection
from .stories import Stories
from .supervision import Supervision
from .trials import Trials


class Decisions:
    """Of the session that the twin follows; its methods may be called from any thread.

    Args:
        journal: receives the events.
        path: to the exporter.
        sync: of the records' flow.
        fidelity: whether decisions may leave.
        node, session: of this side of the link, for the ids of blocks.
        validity_ms, protected, control: as of `Controller`.
        trials: tries blocks before they leave.
        authentication: signs decisions and checks results; None: neither.

    Attributes:
        proposed, installed, rejected: number of PRB blocks and of their results.
        refused_results: number of results that do not come from a trusted exporter.
        held_back: number of lists of PRBs that were due and did not leave, because the fidelity was low.
        stories: of the blocks.
        path, trials: as given.
    """

    def __init__(
        self,
        journal: Journal,
        path: DecisionPath,
        sync: twinlink.Sync,
        fidelity: Fidelity,
        *,
        node: str,
        session: str,
        validity_ms: int,
        protected: frozenset[int],
        control: bool,
        trials: Trials,
        authentication: Authentication | None = None,
    ) -> None:
        self.proposed = self.installed = self.rejected = self.refused_results = self.held_back = 0
        self.stories = Stories(journal, path.tell, path.clock_offset, node)
        self.trials = trials
        self._journal, self.path, self._sync, self._fidelity = journal, path, sync, fidelity
        self._authentication = authentication or Authentication()
        self._node, self._session = node, session
        self._settings = validity_ms, protected, control
        self._reported_another_twin = not control  # a twin that only observes may run beside one that decides
        self._last_proposed: tuple[str, tuple[int, ...]] | None = None
        self._last_refused: tuple[int, ...] | None = None  # since a list left
        self._last_result: tuple[str, str, tuple[int, ...]] | None = None
        self._source = SourceSelection()
        self._controller: Controller | None = None
        self._supervision: Supervision | None = None
        self._recorded_time: RecordedTime | None = None  # of a replay
        # Keeps decisions in order: results and changes of sync arrive on the link's thread.
        self._lock = threading.Lock()

    @property
    def follows_replay(self) -> bool:
        """Whether the records are those of a replay."""
        return self._recorded_time is not None

    def follow(self, record: Record, source: SourceSelection, replayed: bool) -> None:
        """Decide on records as this one from now on."""
        self.trials.follow(record.n_prbs, record.first_prb)
        session = session_of(self._node, record) if replayed else self._session
        with self._lock:
            self._source = source
            self._recorded_time = RecordedTime(self._sync.thresholds) if replayed else None
            self._controller = Controller(record.n_prbs, session, *self._settings, first_prb=record.first_prb)
            self._supervision = None if replayed else Supervision(record.n_prbs, record.first_prb)
        if replayed:
            text = "the records are a replay: they are analysed one by one, and decided on by the time in them"
            self._journal.event("replay", text, observed_ns=record.observed_ns, session=session)

    def decide(
        self,
        interfered: NDArray[np.bool_],
        ue: NDArray[np.bool_],
        record: Record,
        changed: Callable[[Change], object],
        waits: bool = False,
    ) -> None:
        """Take in the answer about a record.

        Args:
            interfered, ue: whether an interferer, and whether a UE is on a PRB; of shape ``(n_prbs,)``.
            record: that was analysed.
            changed: is called with each change of the PRBs with interference.
            waits: as of `Controller.observe`.
        """
        assert self._controller
        holds = self._fidelity.low  # before the time is taken: a decision is not older than that it may leave
        with self._lock:
            if self._recorded_time:
                now_ns, monotonic_ns, in_sync = self._recorded_now(self._recorded_time, record)
            else:
                now_ns, monotonic_ns = time.time_ns(), time.monotonic_ns()
                old = now_ns - record.sent_ns > self._sync.thresholds.out_after * 1e9  # a backlog; newer ones follow
                in_sync = self._sync.state is State.IN_SYNC and not old
            self._supervise(holds, now_ns, monotonic_ns, ue, record.observed_ns)
            for item in self._controller.observe(
                interfered, record.observed_ns, now_ns, monotonic_ns, in_sync, holds, waits
            ):
                if isinstance(item, Change):
                    changed(item)
                elif isinstance(item, Held):
                    self._report_held(item)
                elif block := self.trials.leaving(item):
                    self._controller.parted(block.prbs)
                    self._propose(block, self._controller.seen_ns)
                else:
                    if rest := self._controller.refused(now_ns, monotonic_ns):
                        self._propose(rest)
                    self._refuse(item, self._controller.seen_ns)

    def look(self) -> None:
        """Take back a block that must not stand by now; call it several times a second, and when a digest has come."""
        holds = self._fidelity.low
        with self._lock:
            now_ns, monotonic_ns = time.time_ns(), time.monotonic_ns()
            self._supervise(holds, now_ns, monotonic_ns)
            self.stories.look(now_ns, monotonic_ns)

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
        if self._controller and message.epoch == self._source.epoch:  # other gNBs receive the blocks, too
            if self._recorded_time:
                return  # it answers the twin that was recorded
            with self._lock:
                rejects = self._controller.result(result)
                self.stories.answered(result, of_newest=rejects and result.id.startswith(UNREAD))
                self.trials.on_air(result.prbs)
            if not self._reported_another_twin and self._controller.shows_another_twin(result):
                self._reported_another_twin = True
                text = f"another twin decides for {message.node}, which obeys one at a time ({result.id})"
                self._journal.event("another-twin", f"{text}: start all but one with --no-control", id=result.id)
        if self._controller and not self._controller.is_own(result):
            return
        self._report_result(result, message.received_ns)

    def reported(self, change: twinlink.Change) -> None:
        """Take in a change of the state ``prb-block``."""
        value = change.value
        with self._lock:
            epoch = self._source.epoch
            if value is None or (value.session, change.key) != (epoch, self._source.node(epoch)):
                return
            with suppress(twinlink.MalformedPayload):  # what stands is decided by the results
                self.stories.reported(change.column, value.json())

    def out_of_sync(self) -> None:
        """The records are out of sync, as the link says."""
        with self._lock:
            if self._recorded_time is None:
                self._withdraw(time.time_ns(), time.monotonic_ns())

    def take_back(self, why: str) -> None:
        """Take the block back, and forget the answers that led to it: what gave them was wrong."""
        with self._lock:
            if self._recorded_time is None:
                self._withdraw(time.time_ns(), time.monotonic_ns(), f"{TAKEN_BACK}{why}")
            if self._controller:
                self._controller.forget()

    def finish(self) -> None:
        """No more is decided: say what is known of the decisions that have not ended."""
        with self._lock:
            self.stories.finish()

    # The caller holds the lock

    def _recorded_now(self, recorded: RecordedTime, record: Record) -> tuple[int, int, bool]:
        """Unix time and monotonic time of a record that is replayed, and whether the twin was in sync.

        What `out_of_sync` does live when sync is lost is done here.
        """
        recorded.take(record)
        if recorded.lapsed_ns:
            self._withdraw(*recorded.lapsed_ns)
        if not recorded.in_sync:
            self._withdraw(recorded.wall_ns, recorded.monotonic_ns)
        return recorded.wall_ns, recorded.monotonic_ns, recorded.in_sync

    def _supervise(
        self,
        holds: bool,
        now_ns: int,
        monotonic_ns: int,
        ue: NDArray[np.bool_] | None = None,
        observed_ns: int = 0,
    ) -> None:
        """Take the block back if it must not stand."""
        if self._controller is None or self._supervision is None:
            return
        supervision = self._supervision
        why = supervision.look(monotonic_ns)
        if ue is not None:
            why = supervision.add(ue, observed_ns) or why
        if supervision.effect_ns is not None and supervision.story is not None:
            self.stories.note(supervision.story, "effect", supervision.effect_ns, "exporter")
        if holds:
            self._withdraw(now_ns, monotonic_ns, f"{TAKEN_BACK}{self._fidelity.why_low}")
        elif why:
            self._withdraw(now_ns, monotonic_ns, f"{TAKEN_BACK}{why}", bar=True)

    def _withdraw(self, wall_ns: int, monotonic_ns: int, reason: str = OUT_OF_SYNC, bar: bool = False) -> None:
        if self._controller and (block := self._controller.withdraw(wall_ns, monotonic_ns, reason, bar)):
            self._propose(block)

    def _propose(self, block: PrbBlock, seen_ns: int | None = None) -> None:
        epoch = self._source.epoch
        node = self._source.node(epoch)
        story = self.stories.of(block.id)
        # One that was rejected is repeated with its id, and one that is renewed may leave in another part.
        is_new = bool(block.prbs) and (story is None or story.ended or story.prbs != block.prbs)
        self._last_refused = None
        if is_new:
            tried = self.trials.last if seen_ns is not None else None  # what only lets PRBs go is not tried
            story = self.stories.begin(block, node, epoch or 0, seen_ns, tried)
        try:
            signed = self._authentication.sign(block.encode(), node, epoch)
            signed_ns = time.time_ns() if self._authentication.signs else None
            sent_ns, mono_ns = time.time_ns(), time.monotonic_ns()
            self.path.send(signed, node, epoch, block.validity_ms)
        except twinlink.TwinlinkError as error:
            self._journal.event("control-not-sent", f"PRB block {block.id} was not sent: {error}", id=block.id)
            return
        self.proposed += 1
        renews, self._last_proposed = self._last_proposed == (block.id, block.prbs), (block.id, block.prbs)
        if story is not None:
            story.note("signed", signed_ns, "twin", "" if signed_ns else "no identity")
            self.stories.sent(story, sent_ns, mono_ns, block.validity_ms)
            if self._supervision and is_new:
                self._supervision.begin(story, mono_ns)
        else:
            self._ends(block, sent_ns)
        self._report_proposed(block, renews)

    def _refuse(self, block: PrbBlock, seen_ns: int) -> None:
        """The twin's model refuses a list; of those that it refuses in a row, the first one has a story."""
        last, self._last_refused = self._last_refused, block.prbs
        if last != block.prbs and self.stories.of(block.id) is None and self.trials.last is not None:
            story = self.stories.begin(block, self._source.node(self._source.epoch), 0, seen_ns, self.trials.last)
            self.stories.refused(story)

    def _ends(self, block: PrbBlock, sent_ns: int) -> None:
        """An empty list was sent: it ends the block that stands."""
        story = self.stories.newest
        if self._supervision:
            self._supervision.end()
        if story is None or story.ended:
            return
        if not block.reason.startswith(TAKEN_BACK):
            self.stories.note(story, "withdrawn", sent_ns, "twin", block.reason)
            return
        self.stories.taken_back += 1
        why = block.reason.removeprefix(TAKEN_BACK)
        self.stories.note(story, "taken back", sent_ns, "twin", why)
        text = f"the block of PRBs {format_prbs(story.prbs)} is taken back: {why}"
        self._journal.event("taken-back", text, time_ns=sent_ns, id=story.id, prbs=story.prbs, reason=why)

    # To the log

    def _report_held(self, held: Held) -> None:
        self.held_back += 1
        what = f"a block of PRBs {format_prbs(held.prbs)}" if held.prbs else "the end of the block"
        text = f"{what} is held back: the twin's picture is not that of the network (event fidelity-low)"
        self._journal.event("decision-held", text, prbs=held.prbs)

    def _report_proposed(self, block: PrbBlock, renews: bool) -> None:
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

    def _report_result(self, result: PrbBlockResult, received_ns: int) -> None:
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
            received_ns=received_ns,
            reason=result.reason,
            e3=asdict(result.e3) if result.e3 else None,
        )
