"""Show the peer's clock against this one, live: offset and skew with their bound, and NTP's view of both clocks.

It prints a row for each interval.  The offset is the peer's clock minus this one, estimated from exchanges of small
messages.  Its error is at most the bound on any path while both clocks keep their rates; it is usually much smaller
unless the path is asymmetric.  A clock that is set or slewed by less than a round trip cannot be detected.  The peer
runs `twinlink pong` or, better, `twinlink clock`: then both sides exchange their fastest exchanges, and a constant
difference between messages and answers cancels out.
"""

import argparse
import json
import time
from collections import deque
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlink import Ack, AckTimeout, Link, Message, PeerTimeout, SendTimeout
from twinlink.appkit import convert, formatting, linking
from twinlink.appkit.console import DONE, NOT_MET, Output, Stop, log
from twinlink.appkit.options import Parser
from twinlink.process.guarded_thread import GuardedThread

_NAME = "twinlink clock"
EXAMPLES = """
twinlink clock 10.0.0.5                   # the peer runs clock or pong
twinlink clock --listen tcp/0.0.0.0:7447  # on the peer
twinlink clock 10.0.0.5 --ntp ntp.example.org --count 60 --json
"""
_BURST = 200  # exchanges of a row, back to back
_COLD = 5  # first exchanges after a pause; they take longer in one direction
_BUSY = 0.5  # share of the interval that the exchanges may take
_KEPT = 64  # rows of history of an estimate
_NTP_EVERY_S = 16.0  # the shortest poll interval of RFC 5905 section 7.2; servers may rate-limit more frequent polls
_NTP_SLOWEST_S = 2.0**17  # the longest
_NTP_REFUSALS = {"DENY", "RSTR"}  # after these kiss codes a client must not ask again (section 7.4)
_FASTEST = 16  # exchanges of a row that are sent to the peer
_MAX_PEERS = 2  # in a note
_PAYLOAD_OCTETS = 64
_NOTE_OCTETS = 4096

_Exchanges = NDArray[np.int64]  # of shape (4, n), T1 to T4


def add_options(parser: Parser) -> None:
    """Declare the options."""
    linking.add_options(parser, listens=False, flow="ping", host="twinlink clock")
    parser.add_argument("--count", type=convert.count, metavar="N", help="rows to print; by default until Ctrl-C")
    parser.add_argument(
        "--interval", type=convert.seconds, default=1.0, metavar="S", help="time between rows in s; 0: no pause"
    )
    parser.add_argument(
        "--ntp",
        type=convert.ntp_server,
        metavar="HOST[:PORT]",
        help="also query this NTP server; each side may have one; default port 123",
    )
    linking.add_timeout_option(parser, "how long to wait for the peer, and for an answer")


def run(given: argparse.Namespace) -> int:
    """Exchange, print a row for each interval and peer, then the summary."""
    with Stop() as stop:
        with linking.open_link(given) as link:
            clocks = _Clocks(given, link)
            try:
                linking.wait_for_peer(link, stop, given, _NAME, "twinlink clock")
            except PeerTimeout:
                if given.json:
                    clocks.summary()  # scripts read the summary even if no peer was found
                raise
            clocks.run(stop)
        return clocks.summary()


class _Clocks:
    def __init__(self, given: argparse.Namespace, link: Link) -> None:
        self._given = given
        self._link = link
        self._watch = linking.Watch(_NAME, link)
        self._output = Output(given.json)
        self._acks: SimpleQueue[Ack] = SimpleQueue()
        self._sender = link.sender(given.flow, on_ack=self._acks.put)
        self._peer_ntp: dict[int, Any] = {}
        link.receiver(given.flow, handler=self._on_note)
        self._ntp = _Ntp(given.ntp)
        self._history: dict[int, deque[_Exchanges]] = {}
        self._theirs: dict[int, deque[_Exchanges]] = {}  # exchanges that the peer began
        self._steps: dict[int, list[tuple[int, float]]] = {}
        self._last: dict[int, dict[str, Any]] = {}
        self._rows = self._sent = self._silent = 0

    def run(self, stop: Stop) -> None:
        """Print a row for each interval until the count is reached or the end is requested."""
        given, due = self._given, time.monotonic()
        while not stop.requested and (given.count is None or self._rows < given.count):
            self._ntp.poll()
            self._exchange(stop, max(given.interval * _BUSY, 0.05))
            self._silent += not self._row()
            self._rows += 1
            due = max(due + given.interval, time.monotonic())
            if given.count is None or self._rows < given.count:
                stop.wait(due - time.monotonic())

    def _exchange(self, stop: Stop, busy_s: float) -> None:
        note = json.dumps({"clock": self._note()}).encode()
        end = time.monotonic() + busy_s
        for number in range(_BURST):
            if not self._link.peers():
                break
            try:
                self._sender.send(note if number == 0 else bytes(_PAYLOAD_OCTETS))
            except SendTimeout as error:
                log(_NAME, str(error))
                break
            self._sent += 1
            try:
                self._sender.flush(timeout=self._given.timeout)
            except AckTimeout:
                break  # the summary counts it
            if stop.requested or time.monotonic() > end:
                break

    def _note(self) -> dict[str, Any]:
        """The note sent with each row: this side's view of NTP, and the fastest exchanges of the last row."""
        few = list(self._history.items())[:_MAX_PEERS]
        quickest = {f"{epoch:016x}": _fastest(rows[-1]).tolist() for epoch, rows in few}
        return {"ntp": self._ntp.latest, "quickest": quickest}

    def _on_note(self, message: Message) -> None:
        """Take a note of a peer; checks its format."""
        from twinlink.appkit.clock import LATEST_NS

        if len(message.payload) > _NOTE_OCTETS or bytes(message.payload[:1]) != b"{":
            return
        try:
            told = json.loads(bytes(message.payload))["clock"]
            ntp, quickest = told["ntp"], told["quickest"].get(f"{self._link.epoch:016x}")
            exchanges = np.array(quickest or np.zeros((4, 0)), np.int64)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return
        self._peer_ntp[message.epoch] = ntp
        shaped = exchanges.ndim == 2 and len(exchanges) == 4 and 0 < exchanges.shape[1] <= _FASTEST
        if shaped and ((exchanges >= 0) & (exchanges < LATEST_NS)).all():
            self._theirs.setdefault(message.epoch, deque(maxlen=_KEPT)).append(exchanges)

    def _row(self) -> bool:
        """Print a row for each peer that answered since the last call; returns whether one did."""
        self._watch.tell()
        came: dict[int, list[Ack]] = {}
        while not self._acks.empty():
            ack = self._acks.get()
            came.setdefault(ack.epoch, []).append(ack)
        for epoch, acks in came.items():
            warm = acks[_COLD:] if len(acks) > 2 * _COLD else acks
            stamps = [(ack.sent_ns, ack.peer_received_ns, ack.peer_sent_ns, ack.received_ns) for ack in warm]
            self._history.setdefault(epoch, deque(maxlen=_KEPT)).append(np.array(stamps, np.int64).T)
            self._tell(epoch, acks[-1].received_ns)
        return bool(came)

    def _tell(self, epoch: int, now_ns: int) -> None:
        from twinlink.appkit import clock

        node = self._watch.node(epoch) or f"{epoch:016x}"
        ours, theirs = list(self._history[epoch]), list(self._theirs.get(epoch, ()))
        network_ns = _network_round_trips(np.concatenate(ours, axis=1))
        if theirs:  # as many of each, selected in the same way
            ours = [_fastest(row) for row in ours]
        parts = [(row, False) for row in ours] + [(row, True) for row in theirs]
        try:
            estimate = clock.pooled(parts)
        except ValueError as error:
            log(_NAME, f"{node}: {error}")
            return
        current = estimate.segments[-1]
        self._note_steps(epoch, node, estimate.steps)
        record = {
            "type": "clock",
            "node": node,
            "at_ns": now_ns,
            "offset_ns": round(float(estimate.offset_at(now_ns))),
            "bound_ns": round(float(estimate.bound_at(now_ns))),
            "skew_ppm": current.skew * 1e6 if current.skew_known else None,
            "linear": current.linear,
            "rtt_without_residence_min_ns": int(network_ns.min()),
            "n": estimate.n,
            "both_began": bool(theirs),
            "negative": estimate.negative,
            "steps": [{"at_ns": at, "size_ns": round(size)} for at, size in self._steps.get(epoch, [])],
            "ntp": self._ntp.latest,
            "peer_ntp": self._peer_ntp.get(epoch),
            "by_ntp": None,
        }
        record["by_ntp"] = _by_ntp(record["ntp"], record["peer_ntp"])
        self._last[epoch] = record
        self._output.emit(record, _text(record))

    def _note_steps(self, epoch: int, node: str, steps: list[tuple[int, float]]) -> None:
        known = self._steps.setdefault(epoch, [])
        for at_ns, size_ns in steps:
            if not known or at_ns > known[-1][0]:
                known.append((at_ns, size_ns))
                log(_NAME, f"a clock was set: the offset of {node} changed by {_time(size_ns, signed=True)}")

    def summary(self) -> int:
        """Print it; returns the exit code."""
        acknowledged = self._sender.stats()["acknowledged"]
        lost = self._sent - acknowledged
        lines = [
            f"\n{linking.endpoint(self._given)}, flow {self._given.flow}: {self._rows} rows, "
            f"{acknowledged} of {self._sent} exchanges answered"
        ]
        if self._silent:
            lines[0] += f"; no answer in {self._silent} rows"
        for record in self._last.values():
            lines.append(f"last: {_text(record)}{_times_set(len(record['steps']))}")
        self._output.emit(
            {
                "transport": self._given.transport,
                "flow": self._given.flow,
                "rows": self._rows,
                "silent": self._silent,
                "sent": self._sent,
                "acknowledged": acknowledged,
                "lost": lost,
                "peers": [{key: value for key, value in last.items() if key != "type"} for last in self._last.values()],
                "ntp": self._ntp.latest,
            },
            "\n".join(lines),
        )
        return DONE if self._last and not lost and not self._silent else NOT_MET


def _network_round_trips(exchanges: _Exchanges) -> NDArray[np.int64]:
    t1, t2, t3, t4 = exchanges
    return np.asarray((t4 - t1) - (t3 - t2), np.int64)


def _fastest(exchanges: _Exchanges) -> _Exchanges:
    """The exchanges with the smallest network round trip, in their order in time."""
    order = np.argsort(_network_round_trips(exchanges), kind="stable")[:_FASTEST]
    return exchanges[:, np.sort(order)]


class _Ntp:
    """Polls the server on a thread: a server that does not answer must not delay the rows."""

    def __init__(self, server: str | None) -> None:
        self.latest: dict[str, Any] | None = None
        self._server = server
        self._next = 0.0
        self._every_s = _NTP_EVERY_S
        self._thread: GuardedThread | None = None

    def poll(self) -> None:
        """Query the server when due; waits for the first answer only."""
        if self._server is None or time.monotonic() < self._next or (self._thread and self._thread.is_alive()):
            return
        self._next = time.monotonic() + self._every_s
        first = self._thread is None
        self._thread = GuardedThread(partial(self._ask, self._server), "ntp")
        self._thread.start()
        if first:
            self._thread.join()

    def _ask(self, server: str) -> None:
        from twinlink.appkit import ntp

        self.latest = ntp.view(server)
        kiss = self.latest.get("kiss")
        if kiss in _NTP_REFUSALS:
            self._server = None
        elif kiss == "RATE":
            self._every_s = min(self._every_s * 2, _NTP_SLOWEST_S)
            self._next = time.monotonic() + self._every_s


def _by_ntp(ours: Any, theirs: Any) -> dict[str, int] | None:
    """The peer's clock minus this one by both sides' NTP servers; checks the format of the peer's part."""
    figures: list[int] = []
    for side in (ours, theirs):
        for name in ("offset_ns", "bound_ns"):
            value = side.get(name) if isinstance(side, dict) else None
            if not isinstance(value, int) or abs(value) >= 2**63:
                return None
            figures.append(value)
    our_offset, our_bound, their_offset, their_bound = figures
    return {"offset_ns": our_offset - their_offset, "bound_ns": our_bound + their_bound}


def _text(record: dict[str, Any]) -> str:
    skew = "unknown yet" if record["skew_ppm"] is None else f"{record['skew_ppm']:+.3f} ppm"
    text = (
        f"{record['node']}: offset {formatting.within(record['offset_ns'], record['bound_ns'])}, "
        f"skew {skew}; rtt without residence min {_time(record['rtt_without_residence_min_ns'])}, n = {record['n']}"
    )
    if not record["linear"]:
        text += "; its rate varies"
    if record["negative"]:
        text += f"; {record['negative']} exchanges with a negative delay excluded"
    if record["by_ntp"]:
        found = record["by_ntp"]
        text += f"; by NTP {formatting.within(found['offset_ns'], found['bound_ns'])}"
    own = record["ntp"]
    if own and "error" in own:
        text += f"; NTP: {own['error']}"
    elif own:
        text += f"; this clock minus {own['server']}: {formatting.within(-own['offset_ns'], own['bound_ns'])}"
    return text


def _times_set(times: int) -> str:
    return f"; a clock was set {times} {'time' if times == 1 else 'times'}" if times else ""


def _time(value_ns: float, *, signed: bool = False) -> str:
    """In the largest unit in which the value is at least 1."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(value_ns) >= size:
            return f"{value_ns / size:{'+' if signed else ''}.3f} {unit}"
    return f"{value_ns / 1e3:{'+' if signed else ''}.3f} µs"
