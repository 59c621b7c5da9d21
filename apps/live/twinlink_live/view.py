"""What the page shows of a link: rows of waterfalls twenty times a second, and all else four times a second."""

import itertools
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import twinlink
from twinlink.appkit import linking
from twinlink.block_state import FLOW as BLOCK_STATE
from twinlink.cli.payload_line import HEAD_OCTETS, payload_format
from twinlink.control import unread_id
from twinlink.errors import LinkClosed, MalformedPayload, TransportError, TwinlinkError
from twinlink.events import Event, Gap, Lost, PeerDown, PeerUp, Restarted, SyncChanged, Unclaimed
from twinlink.process.guarded_thread import GuardedThread
from twinlink.protocol.wire import SENT

from .blocks import STEP_MS, Blocks, ranges
from .newest import Newest, Seen
from .strips import Strip, is_numbers
from .waterfall import Record, Waterfall, is_spectrum

STATE_FLOW, ROWS_FLOW = "live-state", "live-rows"
STEP_S = STEP_MS / 1000
STATE_STEPS = 5  # a state for so many rows
REPEATED_STEPS = 20  # each message has the rows of a second: a browser that misses some messages misses no row
DECODED, DECODED_OCTETS = 8, 1024 * 1024  # of records of one waterfall that a row is made of: the newest
LONG_OCTETS = 256 * 1024  # numbers of longer arrays are looked at as often as the state is sent
MAX_WATERFALLS = 4  # of flows and nodes
MAX_STRIPS = 8
IDLE_STEPS = 1200  # without a message, after which another may take the place
MAX_EVENTS = 50
MAX_SPANS = 64
PAUSE_S = 0.0001  # after each record that is decoded: the threads of the link get the interpreter
MAX_ANALYSED = 256  # between two looks
MADE = "made"  # direction of what the twin has made of what it received
# A message of rows: for each row the step, the number of the waterfall, what the row is, its octets; then these.
ROW_HEAD = struct.Struct(">IBBH")
_REPORTED = Gap, Lost, PeerDown, PeerUp, Restarted, SyncChanged, Unclaimed
_SPECTRUM, _DECISIONS, _RESULTS = "spectrum", "control", "control-result"
Key = tuple[str, str, str]  # direction, flow, node


class Source(Protocol):
    """A link of ``node`` that is looked at."""

    newest: Newest
    node: str

    def names(self) -> dict[int, str]:
        """Names of sessions by epoch."""

    def read(self) -> dict[str, Any]:
        """Its flows and peers as the page has them; rates are since the last call."""

    def close(self) -> None:
        """Nothing more is looked at."""


class View:
    """Looks at a link and sends what is seen on ``pages``, whose peers are browsers.

    A browser that takes less gets the newest state and rows: both flows conflate.  The threads of the link only put
    what passes into a bounded queue; all else is done on a thread of the view.  While there is no browser, only the
    decisions are looked at.

    Attributes:
        fidelity: says how far the twin's picture is right (``described()`` of the twin's `Fidelity`); None: no twin.
    """

    def __init__(self, source: Source, pages: twinlink.Link) -> None:
        self.fidelity: Callable[[], dict[str, Any]] | None = None
        self._source, self._newest, self._pages = source, source.newest, pages
        self._waterfalls: dict[Key, Waterfall] = {}
        self._strips: dict[Key, Strip] = {}
        self._formats: dict[tuple[str, str], str] = {}
        self._sent_ns: dict[tuple[str, str], int] = {}  # of the newest message of a flow
        self._nodes: dict[tuple[str, str], set[str]] = {}  # whose messages have come
        self._blocks, self._step, self._watched_step = Blocks(), 0, 0
        self._spans: deque[dict[str, Any]] = deque(maxlen=MAX_SPANS)  # of interference
        self._spans_lock = threading.Lock()
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self._left_out, self._numbers = 0, itertools.count()
        self._analysed: deque[Record] = deque(maxlen=MAX_ANALYSED)
        self._rows: deque[list[bytes]] = deque(maxlen=REPEATED_STEPS)
        self._state_sender = pages.sender(STATE_FLOW, overflow="latest", reliability="detect")
        self._rows_sender = pages.sender(ROWS_FLOW, overflow="latest", reliability="detect")
        self._ended = threading.Event()
        self._thread = GuardedThread(self._run, "twinlink-live", again=lambda: not self._ended.is_set())

    def start(self) -> None:
        """Begin to look and to send."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()
        self._source.close()

    def on_interference(self, prbs: Iterable[int]) -> None:
        """The twin finds interference on these PRBs from now on; none: on none.  Any thread may call it."""
        with self._spans_lock:
            if self._spans and self._spans[-1]["steps"][1] is None:
                self._spans[-1]["steps"][1] = self._step
            if found := ranges(sorted(prbs)):
                self._spans.append({"ranges": found, "steps": [self._step, None]})

    def on_analysed(self, record: Record) -> None:
        """What the twin has made of a record of flow ``spectrum``; its levels are `FREE`, `USED` and `INTERFERED`."""
        self._analysed.append(record)

    @property
    def is_watched(self) -> bool:
        """Whether a browser is there."""
        return self._newest.active

    # On the thread of this view

    def _run(self) -> None:
        began = time.monotonic() - self._step * STEP_S  # it may go on after an exception
        while not self._ended.is_set():
            active = bool(self._pages.peers())
            if active and not self._newest.active:
                self._source.read()  # rates are since now
                self._watched_step = self._step
                self._rows.clear()
            self._newest.active = active
            now_step = int((time.monotonic() - began) / STEP_S)
            self._step = self._step + 1 if active else max(self._step + STATE_STEPS, now_step)
            if self._ended.wait(max(0.0, began + self._step * STEP_S - time.monotonic())):
                return
            self._look()
            if active:
                self._send()

    def _look(self) -> None:
        """Take in what has passed since the last step."""
        nodes = self._source.names()
        while self._newest.events:
            self._take_event(self._newest.events.popleft(), nodes)
        for (direction, flow), topic in list(self._newest.topics.items()):
            messages, left_out = topic.take()
            self._left_out += left_out
            if messages:
                self._take(direction, flow, messages, left_out, nodes)
        self._newest.looked()
        if self._analysed:
            made = self._waterfall((MADE, _SPECTRUM, self._source.node))
            while self._analysed:
                record = self._analysed.popleft()
                if made is not None:
                    made.add(record)
                    made.passed, made.decoded = made.passed + 1, made.decoded + 1
        self._blocks.look(self._step)

    def _take(self, direction: str, flow: str, messages: list[Seen], left_out: int, nodes: dict[int, str]) -> None:
        newest = messages[-1]
        self._sent_ns[direction, flow] = newest.sent_ns
        of_node: dict[str, list[Seen]] = {}
        for message in messages:
            of_node.setdefault(nodes.get(message.epoch, f"{message.epoch:016x}"), []).append(message)
        self._nodes.setdefault((direction, flow), set()).update(name for name in of_node if name in nodes.values())
        for node, some in of_node.items():
            key = direction, flow, node
            if flow == _DECISIONS:
                for message in some:
                    unread = unread_id(message.epoch, message.sequence)
                    self._blocks.asked(message.payload, node, self._step, unread)
            elif flow == _RESULTS:
                for message in some:
                    self._blocks.answered(message.payload, self._step)
            elif flow == BLOCK_STATE:
                for message in some:
                    self._blocks.told(message.payload, self._step)
            elif is_spectrum(flow, newest.payload):
                self._take_records(key, some, left_out)
            elif is_numbers(newest.payload):
                self._take_numbers(key, some[-1])
        if self._step % STATE_STEPS == 0 or (direction, flow) not in self._formats:
            head = bytes(newest.payload[:HEAD_OCTETS])
            self._formats[direction, flow] = payload_format(head, len(newest.payload))

    def _take_records(self, key: Key, messages: list[Seen], left_out: int) -> None:
        waterfall = self._waterfall(key)
        if waterfall is None:
            return
        waterfall.passed += len(messages) + left_out
        for message in messages[-max(1, min(DECODED, DECODED_OCTETS // max(1, len(messages[-1].payload)))) :]:
            try:
                record = Record.decode(message.payload)
            except TwinlinkError:  # it only looked like that, or blosc2 is missing: the table of flows has it
                continue
            waterfall.decoded += 1
            waterfall.add(record)
            self._blocks.observed(record.observed_ns, self._step, self._watched_step)
            time.sleep(PAUSE_S)

    def _waterfall(self, key: Key) -> Waterfall | None:
        """The waterfall of a flow and node, to which a record has come; None: there are too many."""
        waterfall = self._waterfalls.get(key)
        if waterfall is None:
            if not self._has_room(self._waterfalls, MAX_WATERFALLS):
                return None
            waterfall = self._waterfalls[key] = Waterfall(next(self._numbers) % 256)
        waterfall.newest_step = self._step
        return waterfall

    def _has_room(self, places: "dict[Key, Waterfall] | dict[Key, Strip]", limit: int) -> bool:
        """Whether one more may be shown, in place of one to which nothing has come for a while if need be."""
        if len(places) >= limit:
            longest = min(places, key=lambda key: places[key].newest_step)
            if places[longest].newest_step > self._step - IDLE_STEPS:
                return False
            del places[longest]
        return True

    def _take_numbers(self, key: Key, message: Seen) -> None:
        strip = self._strips.get(key)
        if strip is None:
            if not self._has_room(self._strips, MAX_STRIPS):
                return
            strip = Strip()
        if len(message.payload) > LONG_OCTETS and self._step < strip.newest_step + STATE_STEPS:
            return
        try:
            strip.add(message.payload, self._step)
        except MalformedPayload:
            return
        self._strips[key] = strip

    def _take_event(self, event: Event, nodes: dict[int, str]) -> None:
        if not isinstance(event, _REPORTED):
            return
        if isinstance(event, Gap | Lost):
            for (direction, flow, node), waterfall in self._waterfalls.items():
                is_of = node == nodes.get(event.epoch) if isinstance(event, Gap) else direction == SENT
                if flow == event.flow and is_of:
                    waterfall.on_lost()
        self._events.append({"time_ns": str(event.time_ns), "text": linking.sentence(event)})

    def _send(self) -> None:
        rows = [(one.number, *one.step()) for one in self._waterfalls.values()]
        step = self._step
        self._rows.append([ROW_HEAD.pack(step, number, state, len(levels)) + levels for number, state, levels in rows])
        try:
            if any(self._rows):
                self._rows_sender.send(b"".join(row for rows in self._rows for row in rows))
            if step % STATE_STEPS == 0:
                self._state_sender.send(self._state())
        except (LinkClosed, TransportError):
            if not self._ended.is_set():
                raise

    def _state(self) -> dict[str, Any]:
        now_ns = time.time_ns()
        seen = self._source.read()
        for flow in seen["flows"]:
            key = flow["direction"], flow["flow"]
            sent_ns, sync = self._sent_ns.get(key), flow.get("sync")
            flow["format"] = flow.get("format") or self._formats.get(key)
            flow.setdefault("nodes", sorted(self._nodes.get(key, ())))
            if flow.get("age_ns") is None:
                flow["age_ns"] = sync["age_ns"] if sync else None if sent_ns is None else now_ns - sent_ns
        with self._spans_lock:
            spans = list(self._spans)
        return {
            **seen,
            "time_ns": str(now_ns),
            "step": self._step,
            "step_s": STEP_S,
            "left_out": self._left_out,
            "waterfalls": [
                _named(key) | {"number": one.number, "passed": one.passed, "decoded": one.decoded, **one.axis}
                for key, one in self._waterfalls.items()
            ],
            "strips": [_named(key) | one.described() for key, one in self._strips.items()],
            "blocks": self._blocks.described(),
            "interference": spans,
            "fidelity": self.fidelity() if self.fidelity else None,
            "events": list(self._events),
        }


def _named(key: Key) -> dict[str, Any]:
    direction, flow, node = key
    return {"direction": direction, "flow": flow, "node": node}
