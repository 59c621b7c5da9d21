"""The emulated gNB: one thread that answers dApps and plays a recording to them on schedule.

recording --> PrbBlocker --> FFT order, or SlotProcess --> Agent --> Sockets --> dApps
                  ^                                          |
                  +--------------- PRB block ----------------+
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import twinlink_e3 as e3
from numpy.typing import NDArray
from twinlink_e3.indication import MAX_TIMESTAMP

from twinlink.appkit.journal import Journal
from twinlink.appkit.pulse import Pulse
from twinlink.errors import ConfigurationError
from twinlink.kpm import GnbUsage
from twinlink.prbs import format_prbs
from twinlink.spectrum import SUBCARRIERS_PER_PRB

from . import events
from .aerial_agent import AerialAgent, Release
from .agent import Agent
from .playout_log import PlayoutLog
from .prb_block import PrbBlocker
from .recording import Recording
from .schedule import RECORDED, Pace, Schedule
from .slot_process import Range, SlotProcess
from .slot_writer import Notice, SlotPattern, row_of
from .sockets import Sockets

USUAL_FFT_SIZES = (1024, 1536, 2048, 4096)  # of common gNBs; `--fft-size` takes any other that fits
IDLE_MS = 20  # latency of signals and of the start of a subscription
BATCH = 20  # PDUs handled before the schedule is checked again, so that a flood does not stop the playout
# A gNB indicates its newest slot: with one that waited for longer, all behind it would come too late, too.
MAX_INDICATION_AGE_NS = 5_000_000
REFUSALS_LOGGED = 100  # so that garbage does not fill the disk; all are counted
Grant = tuple[int, int]  # first PRB, PRBs


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the playout.

    Attributes:
        pace: how fast.
        loops: number of times to play the recording; 0: until stopped.
        fft_size: bins of an indication; None: the smallest of `USUAL_FFT_SIZES` that holds the carrier.
        wait_subscribers: dApps that must have subscribed before it begins.
        hold_s: how long to answer dApps after the end; None: until stopped.
        codec: of the E3 agent.
        controls: whether the E3 agent offers the control of PRB blocks.
        answers_unreadable: whether the E3 agent answers what it cannot decode (`Agent`).
        free_ids: dApp identifiers that the E3 agent has left (`Agent`).
        aerial: be an `AerialAgent` of this release; needs ``slots``.
        kpms: whether the E3 agent reports KPMs; an `AerialAgent` reports the grants of UEs.
    """

    pace: Pace = RECORDED
    loops: int = 1
    fft_size: int | None = None
    wait_subscribers: int = 1
    hold_s: float | None = None
    codec: e3.Codec = e3.G0
    controls: bool = True
    answers_unreadable: bool = True
    free_ids: int | None = None
    aerial: Release | None = None
    kpms: bool = False


def _slot_of(pattern: SlotPattern, notice: Notice, offset_ns: int, grants: Sequence[Grant] | None) -> e3.SlotIndication:
    """The indication of a slot; ``offset_ns`` is from the time of the notice to that of the indication."""
    first = notice.fh_buffer_index * pattern.rows + notice.fh_write_index
    slots = [
        e3.SlotIndication(
            pattern.iq_name, *row_of(pattern, first + cell), notice.timestamp + offset_ns, notice.sfn, notice.slot,
            cell, pattern.antennas, notice.valid_symbol_mask, pattern.cells if pattern.cells > 1 else None,
            grants=None if grants is None else tuple(grants),
        )
        for cell in range(pattern.cells)
    ]  # fmt: skip
    return replace(slots[0], others=tuple(slots[1:]), names_cells=pattern.cells > 1)


def _runs(prbs: NDArray[np.bool_]) -> list[Grant]:
    """The contiguous ranges of these PRBs."""
    marked = np.concatenate(([False], prbs, [False]))
    borders = np.flatnonzero(marked[1:] != marked[:-1]).tolist()
    return [(first, end - first) for first, end in zip(borders[::2], borders[1::2], strict=True)]


def choose_fft_size(n_prbs: int, asked: int | None) -> int:
    """The FFT size to use.  Raises ConfigurationError if it does not fit the carrier, or E3's 16384 octets."""
    bins = n_prbs * SUBCARRIERS_PER_PRB
    size = asked if asked is not None else next(size for size in USUAL_FFT_SIZES if size >= bins)
    if size < bins:
        raise ConfigurationError(
            f"{n_prbs} PRBs are {bins} subcarriers, which do not fit an FFT of {size} bins (--fft-size)"
        )
    if size * 4 > e3.MAX_IQ_OCTETS:
        raise ConfigurationError(
            f"an FFT of {size} bins takes {size * 4} octets, but E3 carries at most {e3.MAX_IQ_OCTETS} "
            f"(--fft-size {e3.MAX_IQ_OCTETS // 4} or less)"
        )
    return size


class Emulator:
    """Plays a recording to the dApps that subscribe.

    Args:
        recording: what to play.
        sockets: bound.
        options: how.
        journal: for events.
        playout_log: records every record as played; or None.
        slots: writes whole slots to shared memory; without it, I/Q is in the PDUs.

    Attributes:
        pulse: of `run`.
        played: records so far.
    """

    def __init__(
        self,
        recording: Recording,
        sockets: Sockets,
        options: Options,
        journal: Journal,
        playout_log: PlayoutLog | None = None,
        slots: SlotProcess | None = None,
    ) -> None:
        self._recording = recording
        self._sockets = sockets
        self._options = options
        self._journal = journal
        self._playout_log = playout_log
        self._fft_size = choose_fft_size(recording.grid.n_prbs, options.fft_size)
        self._slots = slots
        if slots:
            sockets.watch(slots.descriptor)
        self._agent = AerialAgent(recording.grid.n_prbs, options.aerial) if options.aerial else Agent(
            recording.grid.n_prbs, options.codec, options.controls, options.answers_unreadable, slots is not None,
            options.free_ids, options.kpms,
        )  # fmt: skip
        self._granted = np.zeros(recording.grid.n_prbs, np.bool_)  # to UEs, in the present record
        self._usage = GnbUsage(recording.grid.n_prbs)
        # From the monotonic time to that of indications.
        self._offset_ns = time.time_ns() - time.monotonic_ns() if options.aerial else 0
        self._blocker = PrbBlocker(recording)
        self._blocked = np.zeros(recording.grid.n_prbs, np.bool_)
        self._outgoing: deque[bytes] = deque()
        self._interfered: frozenset[int] = frozenset()
        self.played = 0
        self.pulse = Pulse()
        self._latest_ns = 0
        self._refusals = 0

    @property
    def made_up_cells(self) -> int:
        """Cells (a PRB of a record) that would be replaced by synthetic noise (`PrbBlocker`)."""
        return self._blocker.synthetic

    @property
    def counters(self) -> Counter[str]:
        """Counters of the agent."""
        return self._agent.counters

    @property
    def subscribers(self) -> int:
        """Number of dApps that get indications."""
        return self._agent.subscribers(time.monotonic_ns())

    @property
    def blocked_prbs(self) -> int:
        """Number of blocked PRBs."""
        return int(self._blocked.sum())

    def not_ready(self) -> list[str]:
        """Reasons for not being ready; may be called from any thread."""
        return [] if self.subscribers else ["no dApp has subscribed"]

    def run(self, stop: threading.Event) -> None:
        """Wait for dApps, play, hold; returns at the end or soon after `stop` is set."""
        while not stop.is_set() and self._agent.subscribers(time.monotonic_ns()) < self._options.wait_subscribers:
            self._serve(IDLE_MS)
        if not stop.is_set():
            self._play(stop)
        hold_until = None if self._options.hold_s is None else time.monotonic() + self._options.hold_s
        while not stop.is_set() and (hold_until is None or time.monotonic() < hold_until):
            self._serve(IDLE_MS)

    def _play(self, stop: threading.Event) -> None:
        grid = self._recording.grid
        total = grid.n_records * self._options.loops or None
        schedule = Schedule(time.monotonic_ns(), self._recording.period_ns, self._options.pace)
        self._journal.event(
            "playing", f"playing {grid.n_records} records of {grid.n_prbs} PRBs", records=total, n_prbs=grid.n_prbs
        )
        while not stop.is_set() and (total is None or self.played < total):
            self._wait_until(schedule.due_ns(self.played), stop)
            if not stop.is_set():
                self._play_record(schedule.due_ns(self.played))
        seconds = (time.monotonic_ns() - schedule.start_ns) / 1e9
        if self._slots:
            self._slots.pause()
        while self._outgoing and not stop.is_set():
            self._serve(IDLE_MS)
        if self._playout_log:
            self._playout_log.close()
        self._report_interferer(frozenset(), time.time_ns())
        flat_out = self._options.pace.factor is None
        lateness = "flat out" if flat_out else f"at most {self._latest_ns / 1e6:.1f} ms late"
        self._journal.event(
            "done",
            f"played {self.played} records in {seconds:.3f} s, {self._agent.counters['indications']} indications, "
            f"{lateness}",
            records=self.played,
            seconds=seconds,
            late_max_ms=None if flat_out else self._latest_ns / 1e6,
            complete=self.played == total,
            counters=dict(self._agent.counters),
        )

    def _wait_until(self, due_ns: int, stop: threading.Event) -> None:
        """Serve dApps until the next record is due and all earlier ones have been sent."""
        self._serve(0)
        while not stop.is_set():
            remaining_ns = due_ns - time.monotonic_ns()
            if remaining_ns <= 0 and not self._outgoing:
                return
            if remaining_ns < 1_000_000 and not self._outgoing:
                time.sleep(remaining_ns / 1e9)  # poll() counts in whole milliseconds
                return
            self._serve(min(remaining_ns // 1_000_000, IDLE_MS))

    def _play_record(self, due_ns: int) -> None:
        record = self.played % self._recording.grid.n_records
        samples = self._recording.samples[record]
        if self._agent.block:
            samples = self._blocker.apply(record, self._blocked)
        self._granted = self._recording.ue[record] & ~self._blocked
        if kpm := self._usage.add(time.time_ns(), int(self._granted.sum())):
            data = e3.encode_kpm(kpm.encode())
            self._outgoing.extend(self._agent.indications(data, time.monotonic_ns(), e3.KPM_FUNCTION))
        if self._slots:
            self._slots.play(samples, self._free_ranges())
            played_ns, now_ns = time.time_ns(), time.monotonic_ns()
        else:
            iq_samples = e3.fft_from_natural(samples, self._fft_size).tobytes()
            timestamp = self.played % MAX_TIMESTAMP + 1
            iq_data = self._agent.codec.encode_structure(e3.IqDataIndication(iq_samples, self._fft_size, timestamp))
            played_ns, now_ns = time.time_ns(), time.monotonic_ns()
            self._outgoing.extend(self._agent.indications(iq_data, now_ns))
            self._send()
        self._latest_ns = max(self._latest_ns, now_ns - due_ns)
        if self._playout_log:
            self._playout_log.add(record, samples, self._blocked, played_ns)
        interferer = self._recording.interferer
        if self._interfered or interferer[record].any():
            self._report_interferer(frozenset(np.flatnonzero(interferer[record]).tolist()), played_ns)
        self.played += 1

    def _serve(self, timeout_ms: int) -> None:
        """Handle incoming PDUs, after waiting that long at most, and send queued ones."""
        self.pulse.turn()
        if self._outgoing:
            self._sockets.wait_to_send(1)
        elif timeout_ms > 0:
            self._sockets.wait(timeout_ms)
        for _ in range(BATCH):
            request = self._sockets.setup_request()
            if request is not None and (response := self._agent.setup(request)) is not None:
                self._sockets.answer_setup(response)
            pdu = self._sockets.from_dapp()
            if pdu is not None:
                self._outgoing.extend(self._agent.receive(pdu, time.monotonic_ns()))
            if request is None and pdu is None:
                break
        if self._slots:
            for notice in self._slots.notices():
                if time.monotonic_ns() - notice.timestamp < MAX_INDICATION_AGE_NS:
                    self._indicate(self._slots, notice)
        for event in self._agent.events():
            self._report(event)
        self._send()

    def _indicate(self, slots: SlotProcess, notice: Notice) -> None:
        """Indicate a slot, and its sensing ranges, to the dApps."""
        agent, now_ns = self._agent, time.monotonic_ns()
        if agent.subscribers(now_ns, e3.L1_KPM_FUNCTION):
            grants = _runs(self._granted) if self._options.aerial else None
            slot = _slot_of(slots.pattern, notice, self._offset_ns, grants)
            data = agent.codec.encode_structure(slot)
            self._outgoing.extend(agent.indications(data, now_ns, e3.L1_KPM_FUNCTION))
        if agent.subscribers(now_ns, e3.RAN_FUNCTION):
            ranges = e3.SensingIndication(
                notice.timestamp, notice.sfn, notice.slot, slots.pattern.sensing_name, notice.shm_write_idx,
                notice.n_ranges, 0,
            )  # fmt: skip
            self._outgoing.extend(agent.indications(agent.codec.encode_structure(ranges), now_ns))

    def _free_ranges(self) -> list[Range]:
        """The PRBs without a UE, as the MAC leaves them free: in all symbols."""
        return [(0, 14, *run) for run in _runs(~self._granted)][: e3.sensing_ring.MAX_RANGES]

    def _send(self) -> None:
        while self._outgoing and self._sockets.send(self._outgoing[0]):
            self._outgoing.popleft()

    def _report_interferer(self, prbs: frozenset[int], time_ns: int) -> None:
        for event, changed, what in (
            ("interferer_off", self._interfered - prbs, "gone from"),
            ("interferer_on", prbs - self._interfered, "on"),
        ):
            if changed:
                text = f"interferer {what} PRBs {format_prbs(changed)} in record {self.played}"
                self._journal.event(event, text, time_ns=time_ns, record=self.played, prbs=sorted(changed))
        self._interfered = prbs

    def _report(self, event: events.Event) -> None:
        match event:
            case events.SetUp(dapp, name, vendor):
                self._journal.event("setup", f"dApp {dapp} is {name} by {vendor}", dapp=dapp, name=name, vendor=vendor)
            case events.Subscribed(dapp, subscription, telemetry):
                text = f"dApp {dapp} subscribed" + ("" if telemetry else " without telemetry: it gets no indications")
                self._journal.event("subscription", text, dapp=dapp, subscription=subscription, telemetry=telemetry)
            case events.Unsubscribed(dapp, subscription, reason):
                text = f"subscription of dApp {dapp} ended: {reason}"
                self._journal.event("subscription_ended", text, dapp=dapp, subscription=subscription, reason=reason)
            case events.Blocked(dapp, prbs):
                before, self._blocked = self._blocked, np.zeros(self._recording.grid.n_prbs, np.bool_)
                self._blocked[list(prbs)] = True
                log = self._journal.routine if np.array_equal(before, self._blocked) else self._journal.event
                text = f"dApp {dapp} blocks PRBs {format_prbs(prbs) or 'none'} from record {self.played}"
                log("control", text, dapp=dapp, prbs=list(prbs), record=self.played)
            case events.PolicySet(dapp, masks):
                text = (
                    f"dApp {dapp} sets a sensing policy of {len(masks)} slots" if masks else "the sensing policy ended"
                )
                self._journal.event("policy", text, dapp=dapp, mask_per_slot=list(masks))
            case events.Reported(dapp, prbs):
                self._journal.event(
                    "report", f"dApp {dapp} reports PRBs {format_prbs(prbs) or 'none'}", dapp=dapp, prbs=list(prbs)
                )
            case events.Released(dapp):
                self._journal.event("release", f"dApp {dapp} left", dapp=dapp)
            case events.Refused(reason):
                self._refusals += 1
                if self._refusals <= REFUSALS_LOGGED:
                    self._journal.event("refused", f"refused: {reason}", reason=reason)
