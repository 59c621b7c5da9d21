"""The exporter: one thread between the E3 sockets and the link.

E3 indication -> `Observations` -> flow spectrum ======> twin
                 `Digests`      -> flow digest ========> twin
                 `Kpms`         -> flow kpm ===========> twin
E3 control <- `Controls` <- `DecisionCheck` <- state prb-block, or flow control <== twin
                                            state prb-block, flow control-result ==> twin
"""

import time
from collections import Counter
from dataclasses import asdict
from typing import Any, Literal

import zmq
from twinlink_e3 import CONTROL_PRB_BLOCK, KPM_FUNCTION, IndicationMessage, MalformedPdu, MessageAck, MessageIds

import twinlink
from twinlink import digest, kpm
from twinlink.appkit.journal import Journal
from twinlink.appkit.pulse import Pulse
from twinlink.block_state import FLOW as BLOCK_STATE
from twinlink.control import PrbBlockResult, Status
from twinlink.signed_payload import MAX_SIGNED_OCTETS
from twinlink.sync import State as SyncState

from . import report
from .agent_limits import limits_of
from .authentication import Authentication
from .block import Cause, Control, Instant, NotCleared, Outcome, Todo
from .block_state import BlockState
from .controls import Controls
from .counters import Counters
from .decision_check import DecisionCheck
from .decision_guard import Limits, Rejection, Rule
from .delays import Delays
from .digests import Digests
from .generation_search import GenerationSearch
from .kpms import Kpms
from .leave import leave
from .link_inbox import LinkInbox
from .observation import Carrier
from .observations import Observations
from .reduction import Reduction
from .session import Released, Session, SessionEvent, SetUp, State, Subscribed
from .sockets import E3Sockets, setup_problem
from .twin_sync import SyncLimits
from .twins import Twins

IDLE_MS = 500
LEAVE_S = 0.5  # for the answer to a setup, and for a connection to the agent, to release its identifier
BATCH = 64  # indications read before other sockets have their turn: 32 ms of one per slot
COPIES = 4  # times that slots are copied before other sockets have their turn
LAST_TURNS = 100  # at the PDUs of an agent that is gone: more than its queue holds
SPECTRUM, SENSING, CONTROL, CONTROL_RESULT = "spectrum", "sensing", "control", "control-result"
SENDS = SPECTRUM, digest.FLOW, kpm.FLOW, CONTROL_RESULT, BLOCK_STATE
RECEIVES = CONTROL, digest.REQUEST_FLOW, kpm.FLOW, BLOCK_STATE
ANSWER_NS = 500_000_000  # shortest time between two answers to requests of digests


class Exporter:
    """The exporter, which runs until `stop`.

    Args:
        link: to the twin; the caller closes it after `run`.
        sockets: to the E3 agent; closed by `run`.
        carrier: how to read an indication.
        limits: of the twins' decisions.
        journal: for events.
        search: the generations of E3AP that the agent may have.
        reduction: what is sent of slots.
        sensing: send what the MAC leaves free, too, on flow ``sensing``.
        sync_limits: when a twin is out of sync, by its acknowledgements.
        clear_at_start: begin with an empty block list, in case an earlier exporter left a block.
        authentication: which decisions count; without it, none does.

    Attributes:
        counters: see `Counters`.
        delays: see `Delays`.
        kpms: see `Kpms`.
        outcomes: results of PRB blocks, by status and reason: a cause of `block`, or the guard's rule.
        pulse: of `run`.
    """

    def __init__(
        self,
        link: twinlink.Link,
        sockets: E3Sockets,
        carrier: Carrier,
        limits: Limits,
        journal: Journal,
        *,
        search: GenerationSearch | None = None,
        reduction: Reduction | None = None,
        sensing: bool = False,
        sync_limits: SyncLimits | None = None,
        clear_at_start: bool = False,
        authentication: Authentication | None = None,
    ) -> None:
        self.counters = Counters()
        self.delays = Delays()
        self.outcomes: Counter[tuple[Status, Cause | Rule]] = Counter()
        self.pulse = Pulse()
        self._sockets = sockets
        self._journal = journal
        self._clear_next = clear_at_start
        self._reduction, self._sensing = reduction or Reduction(), sensing
        next_message_id = MessageIds()
        self._session = Session(
            "twinlink-exporter", twinlink.__version__, "twinlink", next_message_id, search,
            sensing=sensing, slots_per_frame=limits.slots_per_frame,
        )  # fmt: skip
        self._controls = Controls(next_message_id)
        self._twins = Twins(sync_limits or SyncLimits())
        self._authentication = authentication or Authentication(None, link.epoch)
        self._check = DecisionCheck(limits, self._authentication, self._session, self._twins)
        self._stopping = False
        self._inbox = LinkInbox(self.counters)
        self._dropped_told = 0
        # The newest observations matter, and blocking would make the E3 sockets drop some uncounted.
        self._spectrum = link.sender(SPECTRUM, on_ack=self._acknowledged, overflow="drop-oldest")
        self._results = link.sender(CONTROL_RESULT)  # none is dropped: each decision is answered
        ranges = link.sender(SENSING, overflow="drop-oldest") if sensing else None
        self._digest = link.sender(digest.FLOW, overflow="drop-oldest")
        kpms = link.sender(kpm.FLOW, overflow="drop-oldest")
        self.kpms = Kpms(carrier.n_prbs, journal, lambda: bool(self._twins), kpms.send)
        self._answered_ns = 0  # monotonic time of the last answer to a request of a digest
        self._digests = Digests(digest.Settings(carrier.n_prbs, 0, carrier.n_prbs, carrier.scs_hz, carrier.centre_hz))
        self._observations = Observations(
            carrier, self._reduction, self.counters, journal, lambda: bool(self._twins), self._observe,
            self._digests, self.delays, self.kpms, ranges.send if ranges else None,
        )  # fmt: skip
        link.events(handler=self._from_link)
        link.receiver(CONTROL, handler=self._from_link, max_payload=MAX_SIGNED_OCTETS)
        link.receiver(digest.REQUEST_FLOW, handler=self._from_link, max_payload=digest.MAX_REQUEST_OCTETS)
        link.receiver(kpm.FLOW, handler=lambda message: None)  # the twins' own, which are recorded here, too
        self._node = link.node
        self._block_state = BlockState(link, self._from_link)

    def stop(self) -> None:
        """End `run` soon; may be called from any thread and from a signal handler."""
        self._stopping = True
        self._inbox.wake()

    def run(self) -> None:
        """Serve until `stop`; then clear the block, release the dApp, and close the E3 sockets."""
        sockets = self._sockets
        sockets.poller.register(self._inbox.descriptor, zmq.POLLIN)
        try:
            while not self._stopping:
                self._inbox.wait(self._observations.pause_ns())
                for socket, _ in sockets.poller.poll(self._timeout_ms()):
                    if socket == sockets.from_ran:
                        self._take_from_ran()
                    elif socket == self._inbox.descriptor:
                        self._inbox.rest()
                        self._take_from_link()
                    else:
                        self._take_from_agent()
                if sockets.has_more or self._observations.pending:
                    self._take_from_ran()
                self._keep_time()
                self.pulse.turn()
        finally:
            self._do(self._controls.clear("exporter-ends", Instant.now()))
            self._observations.close()
            leave(self._session, sockets, LEAVE_S)
            sockets.close()
            self._inbox.close()

    @property
    def subscribed(self) -> bool:
        """Whether the E3 agent sends indications."""
        return self._session.state is State.SUBSCRIBED

    @property
    def blocked_prbs(self) -> int:
        """Number of blocked PRBs."""
        return len(self._controls.block.prbs)

    @property
    def block_remains_s(self) -> float | None:
        """Seconds until the block ends unless it is renewed; None without one."""
        ends_ns = self._controls.block.ends_ns
        return None if ends_ns is None else (ends_ns - time.monotonic_ns()) / 1e9

    @property
    def block_unknown(self) -> bool:
        """Whether the RAN's state is unknown."""
        return self._controls.block.unknown

    def not_ready(self) -> list[str]:
        """Reasons for not being ready; may be called from any thread."""
        reasons = (self._session.not_ready(), self._twins.not_ready(time.monotonic_ns()))
        return [reason for reason in reasons if reason]

    def twins_by_state(self) -> Counter[SyncState]:
        """Number of twins that are up, by their state; may be called from any thread."""
        return Counter(report.state for report in self._twins.reports(time.monotonic_ns()))

    def summary(self) -> dict[str, Any]:
        """Counters, delays, and statistics of flow ``spectrum``, whose ``lost`` counts dropped observations."""
        return {**asdict(self.counters), **self.delays.summary(), "spectrum": self._spectrum.stats()}

    # From the RAN to the twin

    def _take_from_ran(self) -> bool:
        """Take in PDUs of the RAN, and send the slots that they indicate; returns whether these were all."""
        all_read = self._read_from_ran()
        self._observations.send(all_read)
        for _ in range(COPIES):
            if not self._observations.copy(all_read):
                break
            all_read = self._read_from_ran()  # tells which rows the gNB may have written again
            self._observations.send(all_read)
        return all_read and not self._observations.pending

    def _read_from_ran(self) -> bool:
        """Take in PDUs of the RAN, `BATCH` at most; returns whether these were all."""
        for _ in range(BATCH):
            try:
                if (octets := self._sockets.receive()) is None:
                    return True
                observed_ns = time.time_ns()
                pdu = self._session.read(octets)
                if isinstance(pdu, IndicationMessage):
                    self._take_indication(pdu, observed_ns)
                elif pdu and (event := self._session.received(pdu, time.monotonic_ns())):
                    self._on_session_event(event)
                else:
                    self.counters.for_others += 1
            except MalformedPdu as error:
                self.counters.undecodable += 1
                self._journal.complaint("e3-undecodable", f"a message of the E3 agent cannot be read: {error}")
        return False

    def _take_indication(self, message: IndicationMessage, observed_ns: int) -> None:
        """Raises MalformedPdu."""
        session = self._session
        if not session.expects(message):
            self.counters.for_others += 1
            return
        if event := session.indicated(message.ran_function_identifier, time.monotonic_ns()):
            self._on_session_event(event)
        if message.ran_function_identifier == KPM_FUNCTION:
            self.kpms.reported(message.protocol_data)
        else:
            self._observations.take(message, session, observed_ns)

    def _observe(self, payload: bytes) -> None:
        self._twins.sent.sending(time.monotonic_ns())
        self._twins.sent.sent(self._spectrum.send(payload))

    def _acknowledged(self, ack: twinlink.Ack) -> None:
        """Handle an acknowledgement, on the link's thread."""
        self._twins.acknowledged(ack.epoch, ack.sequence, time.monotonic_ns() - ack.rtt_ns)

    # The session with the E3 agent

    def _take_from_agent(self) -> None:
        sockets, session = self._sockets, self._session
        if sockets.tick(time.monotonic_ns()) and session.state is not State.SETUP:
            for _ in range(LAST_TURNS):  # what the agent sent before
                if self._take_from_ran():
                    break
            gone = f"the E3 agent at {sockets.endpoints.to_dapp} is gone"
            self._lose_agent("e3-lost", f"{gone}; setting up again when it is back")
        try:
            if (octets := sockets.receive_setup()) is not None and session.state is State.SETUP:
                self._on_session_event(session.setup_answered(octets, time.monotonic_ns()))
        except MalformedPdu as error:
            self.counters.undecodable += 1
            self._journal.complaint("e3-undecodable", f"the E3 agent's answer to setup cannot be read: {error}")
        if sockets.connected:
            session.connected(time.monotonic_ns())
        if sockets.can_send:
            for release in session.releases():
                sockets.send(release)

    def _on_session_event(self, event: SessionEvent) -> None:
        if isinstance(event, MessageAck):
            positive = event.response_code == "positive"
            ran_ns = event.timestamp if self._session.sequenced else None
            self._do(self._controls.acknowledged(event.request_id, positive, Instant.now(), ran_ns))
            return
        if isinstance(event, Released):
            self._lose_agent("e3-lost", "the E3 agent released this dApp; setting up again")
            return
        self.counters.setups += isinstance(event, SetUp)
        report.session_event(self._journal, event, self._session.dapp_id, self._sockets.link)
        if isinstance(event, SetUp):
            wanted, sequenced = self._reduction, self._session.sequenced
            limits = limits_of(event, wanted, sensing=self._sensing, sequenced=sequenced)
            report.agent_limits(self._journal, limits)
        if isinstance(event, Subscribed):
            self._do(self._controls.e3_ready(self._clear_next, sequenced=self._session.sequenced))
            self._clear_next = False

    def _lose_agent(self, event: str, text: str) -> None:
        self.counters.e3_lost += 1
        self._journal.event(event, text)
        self._observations.finish()
        self.kpms.lost()
        self._session.lost()
        self._do(self._controls.e3_lost(Instant.now()))

    def _keep_time(self) -> None:
        session, now = self._session, Instant.now()
        self._observations.timer(now.monotonic_ns)
        for ready in self._digests.take(now.wall_ns):
            if self._twins:
                self._send_digest(ready)
        self._do(self._controls.timer(now))
        self._watch_twins(now)
        self._block_state.show(self._controls.block, now.monotonic_ns)
        if now.monotonic_ns >= self._sockets.next_tick_ns(now.monotonic_ns):
            self._take_from_agent()
        if session.silent(now.monotonic_ns):
            if release := session.release():
                self._sockets.send(release)
            self._lose_agent("e3-silent", "no indication for a long time; releasing this dApp and setting up again")
        before, connected, endpoints = session.state, self._sockets.connected, self._sockets.endpoints
        if before is State.SUBSCRIBE and not connected and now.monotonic_ns >= session.next_request_ns():
            report.not_connected(self._journal, endpoints)
        if (request := session.request(now.monotonic_ns, connected)) is None:
            return
        if session.state is State.SETUP:
            problem = setup_problem(endpoints)
            report.setup_request(self._journal, endpoints.setup, session.codec.name, problem)
            if problem is None:
                self._sockets.send_setup(request)
            if before is State.SUBSCRIBE:
                report.not_subscribed(self._journal, endpoints)
        else:
            self._sockets.send(request)

    def _watch_twins(self, now: Instant) -> None:
        """Detect a twin that is out of sync, independent of its own report."""
        for twin, sync in self._twins.changes(now.monotonic_ns):
            self.counters.out_of_sync += twin.out_of_sync
            report.sync_change(self._journal, SPECTRUM, twin, sync)
            if twin.out_of_sync and self._twins.release(twin):
                self._end_hold("out-of-sync", now)

    def _end_hold(self, cause: Literal["twin-lost", "out-of-sync"], now: Instant) -> None:
        """The twin that held the block is down or out of sync: clear its block."""
        report.holder(self._journal, None)
        self._do(self._controls.clear(cause, now))

    def _timeout_ms(self) -> int:
        if self._sockets.has_more or self._observations.pending:
            return 0
        now_ns = time.monotonic_ns()
        timers = (self._controls.next_timer_ns(), self._observations.next_timer_ns())
        times = [self._session.next_request_ns(), self._sockets.next_tick_ns(now_ns), *(ns for ns in timers if ns)]
        return max(0, min(IDLE_MS, -((now_ns - min(times)) // 1_000_000)))

    # From the twin to the RAN

    def _from_link(self, item: twinlink.Message | twinlink.Event) -> None:
        """Queue an item, on the link's thread."""
        self._inbox.put(item)

    def _take_from_link(self) -> None:
        if (dropped := self.counters.decisions_dropped) > self._dropped_told:
            self._journal.complaint(
                "decisions-dropped", f"decisions come too fast: the oldest {dropped} were dropped", dropped=dropped
            )
            self._dropped_told = dropped
        for item in self._inbox.take():
            if isinstance(item, twinlink.Message) and item.flow == digest.REQUEST_FLOW:
                self._answer_request(item)
            elif isinstance(item, twinlink.Message):
                self._decide(item)
            elif isinstance(item, twinlink.PeerUp):
                self._twins.up(item.node, item.epoch, time.monotonic_ns())
                self._journal.event("peer-up", f"twin {item.node} is up", node=item.node)
            elif isinstance(item, twinlink.PeerDown):
                self._journal.event("peer-down", f"twin {item.node} is gone: {item.reason}", node=item.node,
                                    reason=item.reason)  # fmt: skip
                if self._twins.down(item.epoch):
                    self._end_hold("twin-lost", Instant.now())
            else:
                report.link_event(self._journal, item)

    def _answer_request(self, message: twinlink.Message) -> None:
        """A twin's picture is not ours: state what this exporter sends, and what it has heard in this second."""
        now = Instant.now()
        try:
            request = digest.DigestRequest.decode(message.payload)
        except twinlink.MalformedPayload as error:
            self._journal.complaint("malformed-request", f"a message on flow {message.flow} cannot be read: {error}")
            return
        if request.node in ("", self._node) and now.monotonic_ns - self._answered_ns >= ANSWER_NS:
            self._answered_ns = now.monotonic_ns
            self.counters.digest_requests += 1
            report.digest_request(self._journal, message, request.reason)
            self._send_digest(self._digests.answer(now.wall_ns))

    def _send_digest(self, ready: digest.Digest) -> None:
        try:
            self._digest.send(ready.encode())
        except (twinlink.TwinlinkError, ValueError) as error:
            self._journal.complaint("not-sent", f"a digest was not sent: {error}")

    def _decide(self, message: twinlink.Message) -> None:
        if not self._twins.decides_by(message.epoch, message.flow == CONTROL):
            return  # it has decided on the flow before
        now, holder = Instant.now(), self._twins.holder
        verdict = self._check(message, now)
        if not isinstance(verdict, Rejection):
            if self._twins.holder is not holder:
                report.holder(self._journal, self._twins.holder)
            # The time anew: to verify a signature takes a while.
            self._do(self._controls.propose(verdict, message.received_ns, Instant.now()))
            return
        self.counters.blocks_rejected += 1
        self.outcomes["rejected", verdict.rule] += 1
        report.rejection(self._journal, message, verdict)
        if verdict.id is not None:
            self._answer(PrbBlockResult(verdict.id, "rejected", self._controls.block.prbs, now.wall_ns, verdict.reason))

    def _do(self, todo: list[Todo]) -> None:
        for item in todo:
            if isinstance(item, Control):
                if octets := self._session.control(item):
                    self._sockets.send(octets)
            elif isinstance(item, NotCleared):
                report.not_cleared(self._journal, item.control)
            else:
                self._answer(item.result)
                self._report(item)
        if todo:
            self._block_state.show(self._controls.block, time.monotonic_ns())

    def _answer(self, result: PrbBlockResult) -> None:
        try:
            self._results.send(self._authentication.sign(CONTROL_RESULT, result.encode()))
        except twinlink.TwinlinkError as error:
            self._journal.complaint("not-sent", f"the result of block {result.id} was not sent: {error}")

    def _report(self, outcome: Outcome) -> None:
        status = outcome.result.status
        if outcome.control == CONTROL_PRB_BLOCK:
            self.outcomes[status, outcome.cause] += 1
        self.counters.decided(outcome.control, status)
        self.delays.decided(outcome)
        report.outcome(self._journal, outcome)
