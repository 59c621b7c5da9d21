"""One cell in one round: the sender sends, the reflector answers, and both return their records."""

import time
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Any

import numpy as np
from twinlink_results.run import received_table, sent_table

from twinlink.appkit.records import Table
from twinlink.errors import PeerTimeout

from . import search
from .cells import Plan
from .setting import Pair
from .worker_handle import Interrupted, Stopped, WorkerFailed, WorkerLost, watching

FRAME_OCTETS = 66  # headers of Ethernet, IPv4 and TCP with timestamps, per segment; a 64 KiB packet is counted with one
# A new link sends long messages in fragments until it knows the delivery rate, after a quarter of a second.
LONG_OCTETS = 192 * 1024
LONG_WARM_UP_S = 0.5  # for longer messages, for every subject
TRIAL_S = 0.5  # duration of a trial
MAX_TRIAL = 100_000  # messages
FLOOD = 2000  # messages, and
FLOOD_OCTETS = 64 * 1024 * 1024
FLOODS = 3  # the quickest counts, as a stall dominates a short one; one of `TRIAL_S` or more is enough
SEND_S = 600.0  # in addition to the time-outs of the answers


@dataclass(frozen=True)
class RoundResult:
    """Result of a cell in one round: its tables, its entry in run.json, and what went wrong."""

    sent: Table
    received: Table
    entry: dict[str, Any]
    status: str = "done"
    reason: str | None = None


class CellRun:
    """One cell, one round, on a pair of workers with the subject open."""

    def __init__(self, plan: Plan, pair: Pair, cell: dict[str, Any], number: int, counts_wire: bool) -> None:
        self._plan = plan
        self._cell = cell
        self._mode: str = cell["mode"]
        self._number = number
        self._counts_wire = counts_wire
        self._warmed_up = 0  # messages
        sides = (pair.real_world, pair.digital_twin)
        self._sender, self._reflector = sides if cell["direction"] == "rw-dt" else sides[::-1]

    def run(self, stopped: Stopped) -> RoundResult:
        """Measure it.

        Raises:
            WorkerLost, WorkerFailed, Interrupted: before there was a result.
        """
        self.warm_up(stopped, self.warm_up_s)
        if self._mode == "saturation":
            return self._search(stopped)
        return self.trial(self._plan.share(self._mode, self._number), self._cell["rate_hz"], stopped)

    @property
    def warm_up_s(self) -> float:
        """Least duration of the warm-up."""
        return LONG_WARM_UP_S if self._cell["octets"] > LONG_OCTETS else 0.0

    def warm_up(self, stopped: Stopped, least_s: float) -> None:
        """Exchange messages that are not recorded, for at least ``least_s``; raises as `run` does."""
        plan, octets = self._plan, self._cell["octets"]
        until = time.monotonic() + least_s
        while True:
            self._reflector.ask("reflect", octets=octets, count=plan.warm_up)
            self._sender.ask(
                "warm", plan.timeout_s * (plan.warm_up + 2) + SEND_S, watching(self._reflector, stopped),
                octets=octets, count=plan.warm_up, timeout_s=plan.timeout_s,
            )  # fmt: skip
            self._warmed_up += plan.warm_up
            if not plan.warm_up or time.monotonic() >= until:
                return

    def trial(self, count: int, rate_hz: float | None, stopped: Stopped) -> RoundResult:
        """Send ``count`` messages, in an open loop at ``rate_hz``, or unpaced if None; raises as `run` does."""
        plan, octets = self._plan, self._cell["octets"]
        sender, reflector = self._sender, self._reflector
        reflector.ask("reflect", octets=octets, count=count, bulk=self._mode == "saturation")
        reflector.ask("mark")
        limit_s = plan.timeout_s * (count + 2 if self._mode == "closed" else 2) + SEND_S
        question = sender.begin(
            "send", mode=self._mode, octets=octets, count=count, timeout_s=plan.timeout_s, rate_hz=rate_hz
        )
        trouble: tuple[str, str] | None = None
        try:
            said = sender.answer(question, limit_s, watching(reflector, stopped))
        except (Interrupted, WorkerLost) as error:
            if sender.lost is not None:
                raise
            trouble = failure(error)
            sender.ask("cancel")
            said = sender.answer(question, plan.timeout_s + 5)
        if "trouble" in said and trouble is None:
            trouble = ("peer lost", reflector.lost or said["trouble"])
        try:
            heard = reflector.ask("finish", 60.0, first=said["first"], expected=said["answered"])
        except WorkerLost as error:
            heard = {"usage": None, "counters": None}
            trouble = trouble or ("peer lost", str(error))
        taken = self._taken(said, heard)
        return taken if trouble is None else replace(taken, status=trouble[0], reason=trouble[1])

    def _taken(self, said: dict[str, Any], heard: dict[str, Any]) -> RoundResult:
        sent = sent_table(self._number, self._cell["octets"], said.get("sent_rows", b""), said.get("answer_rows", b""))
        received = received_table(self._number, heard.get("received_rows", b""), said["first"], said["sent"])
        entry = cell_entry(self._number, said, heard, self._counts_wire, self._warmed_up)
        return RoundResult(sent, received, entry)

    def _search(self, stopped: Stopped) -> RoundResult:
        """The highest rate without loss, with the rows of the trial that carried it."""
        best: list[RoundResult] = []
        least_ns: list[int] = []  # least delay of each trial, the clock offset included

        def offer(rate_hz: float) -> search.Trial:
            count = max(self._plan.count, min(int(rate_hz * TRIAL_S), MAX_TRIAL))
            taken = self.trial(count, rate_hz, stopped)
            if taken.status != "done":
                raise _Ended(taken)
            least_ns.append(_least_ns(taken))
            trial = _judged(taken, rate_hz, count, min(least_ns))
            steps.append(trial)
            if trial.lossless:
                best.append(taken)
            return trial

        steps: list[search.Trial] = []
        found = None
        try:
            floods = self._floods(stopped)
            least_ns += map(_least_ns, floods)
            _, found = search.highest(offer, max(map(_rate, floods)))
            taken = best[-1] if best else floods[-1]
            if found is None:
                taken = replace(taken, reason="no rate that was offered came through without loss")
        except _Ended as ended:
            taken = ended.taken
            if best:
                taken = replace(best[-1], status=taken.status, reason=taken.reason)
        known = self._cell["search"] or {"steps": [], "highest_loss_free_hz": None, "rounds_hz": []}
        known["steps"] += [{"round": self._number, **step.as_json()} for step in steps]
        if found is not None:
            known["rounds_hz"].append(found)
            known["highest_loss_free_hz"] = median_low(known["rounds_hz"])
        self._cell["search"] = known
        return taken

    def _floods(self, stopped: Stopped) -> list[RoundResult]:
        count = max(self._plan.count, min(FLOOD, FLOOD_OCTETS // max(1, self._cell["octets"])))
        floods: list[RoundResult] = []
        while len(floods) < FLOODS and all(each.entry["elapsed_ns"] < TRIAL_S * 1e9 for each in floods):
            floods.append(self.trial(count, None, stopped))
            if floods[-1].status != "done":
                raise _Ended(floods[-1])
        return floods


def cell_entry(
    number: int, said: dict[str, Any], heard: dict[str, Any], counts_wire: bool, warm_up: int
) -> dict[str, Any]:
    """The entry of run.json for one round of a cell."""
    own, other = said["usage"], heard["usage"] or {}
    entry = {
        "round": number,
        "started_ns": said["started_ns"],
        "elapsed_ns": said["elapsed_ns"],
        "warm_up": warm_up,
        "sent": said["sent"],
        "dropped": said["dropped"],
        "sender_cpu_ns": own["cpu_ns"],
        "receiver_cpu_ns": other.get("cpu_ns"),
        "broker_cpu_ns": _either(own, other, "broker_cpu_ns"),
        "sender_peak_rss_octets": own["peak_rss_octets"],
        "receiver_peak_rss_octets": other.get("peak_rss_octets"),
        "broker_peak_rss_octets": _either(own, other, "broker_peak_rss_octets"),
        "wire_octets": None,
        "wire_packets": None,
        "counters": _counters(said["counters"], heard["counters"]),
    }
    if counts_wire and other:
        forward, back = _wire(own), _wire(other)
        entry["wire_octets"] = {"forward": forward[0], "back": back[0]}
        entry["wire_packets"] = {"forward": forward[1], "back": back[1]}
    return entry


class _Ended(Exception):
    """A trial did not complete."""

    def __init__(self, taken: RoundResult) -> None:
        super().__init__(taken.reason)
        self.taken = taken


def _judged(taken: RoundResult, rate_hz: float, count: int, least_ns: int) -> search.Trial:
    """Judge a trial by its schedule, not by the first arrival, which may be late as well.

    ``least_ns`` is the least delay of the search as the two clocks show it, so that their offset, which hardly changes
    within a search, cancels.
    """
    arrived = len(set(taken.received["sequence"].tolist()))
    times = taken.received["received_ns"]
    span_s = float(times.max() - taken.sent["scheduled_ns"].min() - least_ns) / 1e9 if len(times) else 0.0
    return search.judge(rate_hz, count, len(taken.sent), arrived, span_s)


def _least_ns(taken: RoundResult) -> int:
    """Least time from a scheduled send to its arrival; the greatest integer without arrivals."""
    received = taken.received
    delays = received["received_ns"] - taken.sent["scheduled_ns"][received["sequence"]]
    return int(delays.min(initial=np.iinfo(np.int64).max))


def _rate(flood: RoundResult) -> float:
    """Messages that the receiver got per second."""
    times = flood.received["received_ns"]
    if len(times) < 2 or times[-1] <= times[0]:
        return 1000.0
    return float((len(times) - 1) / (times[-1] - times[0]) * 1e9)


def _either(one: dict[str, Any], other: dict[str, Any], name: str) -> int | None:
    value = one.get(name)
    return value if value is not None else other.get(name)


def _wire(usage: dict[str, Any]) -> tuple[int, int]:
    """Octets and packets on the wire, each segment with its own headers."""
    extra = max(0, usage["sent_segments"] - usage["sent_packets"])
    return usage["sent_octets"] + extra * FRAME_OCTETS, usage["sent_packets"] + extra


def _counters(sender: dict[str, int] | None, receiver: dict[str, int] | None) -> dict[str, int | None] | None:
    """Counters of the link; those of a receiver that died are None."""
    if sender is None:
        return None
    heard = ("received", "missing", "gaps", "duplicates", "reordered")
    return {
        **{name: sender[name] for name in ("lost", "acknowledged", "repaired")},
        **{name: receiver[name] if receiver else None for name in heard},
        "malformed": sender["malformed"] + receiver["malformed"] if receiver else None,
    }


def failure(error: Exception) -> tuple[str, str]:
    """Status and reason of a cell that ended with this error."""
    if isinstance(error, Interrupted):
        return "interrupted", "the end was asked for"
    if isinstance(error, WorkerLost | PeerTimeout):
        return "peer lost", str(error)
    if isinstance(error, WorkerFailed) and error.kind in ("peer lost", "unusable"):
        return ("peer lost" if error.kind == "peer lost" else "skipped"), str(error)
    return "failed", str(error)
