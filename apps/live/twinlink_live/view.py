"""What the page shows of a link: rows of waterfalls twenty times a second, and all else four times a second."""

import struct
import threading
import time
from collections import deque
from typing import Any

import twinlink
from twinlink.appkit import linking
from twinlink.cli.observer import Observer
from twinlink.errors import LinkClosed, TransportError, TwinlinkError
from twinlink.events import Event, Gap, Lost, PeerDown, PeerUp, Restarted, Unclaimed
from twinlink.process.guarded_thread import GuardedThread

from .waterfall import Record, Waterfall, is_spectrum

STATE_FLOW, ROWS_FLOW = "live-state", "live-rows"
STEP_S = 0.05
STATE_STEPS = 5  # a state for so many rows
REPEATED_STEPS = 20  # each message has the rows of a second: a browser that misses some messages misses no row
MAX_WATERFALLS = 4  # of flows and nodes
MAX_EVENTS = 50
# A message of rows: for each row the step, the number of the waterfall, what the row is, its octets; then these.
ROW_HEAD = struct.Struct(">IBBH")
_REPORTED = Gap, Lost, PeerDown, PeerUp, Restarted, Unclaimed


class View:
    """Looks at ``link`` and sends what is seen on ``pages``, whose peers are browsers.

    A browser that takes less gets the newest state and rows: both flows conflate.
    """

    def __init__(self, link: twinlink.Link, pages: twinlink.Link) -> None:
        self._link, self._pages = link, pages
        self._lock = threading.Lock()  # of the waterfalls, and the events
        self._waterfalls: dict[tuple[str, str], Waterfall] = {}
        self._nodes: dict[int, str] = {}  # by epoch: whose records have come
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self._rows: deque[list[bytes]] = deque(maxlen=REPEATED_STEPS)
        self._observer = Observer(link, self._on_message, self._on_event)
        self._state_sender = pages.sender(STATE_FLOW, overflow="latest", reliability="detect")
        self._rows_sender = pages.sender(ROWS_FLOW, overflow="latest", reliability="detect")
        self._ended = threading.Event()
        self._thread = GuardedThread(self._run, "twinlink-live", again=lambda: not self._ended.is_set())

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Send nothing more."""
        self._ended.set()
        self._thread.join()

    # On the thread that receives

    def _on_message(self, message: twinlink.Message) -> None:
        if not is_spectrum(message):
            return
        key = message.flow, message.node or f"{message.epoch:016x}"
        try:
            record = Record.decode(message.payload)
        except TwinlinkError:  # it only looked like that, or blosc2 is missing: the table of flows has it all the same
            return
        with self._lock:
            waterfall = self._waterfalls.get(key)
            if waterfall is None:
                if len(self._waterfalls) >= MAX_WATERFALLS:
                    return
                waterfall = self._waterfalls[key] = Waterfall()
            self._nodes[message.epoch] = key[1]
            waterfall.add(record)

    def _on_event(self, event: Event) -> None:
        if not isinstance(event, _REPORTED):
            return
        with self._lock:
            if isinstance(event, Gap):
                waterfall = self._waterfalls.get((event.flow, self._nodes.get(event.epoch, "")))
                if waterfall is not None:
                    waterfall.on_lost()
            self._events.append({"time_ns": str(event.time_ns), "text": linking.sentence(event)})

    # On the thread of this view

    def _run(self) -> None:
        began, step = time.monotonic(), 0
        while not self._ended.wait(max(0.0, began + (step + 1) * STEP_S - time.monotonic())):
            step += 1
            self._take_rows(step)
            if not self._pages.peers():
                continue
            try:
                if any(self._rows):
                    self._rows_sender.send(b"".join(row for rows in self._rows for row in rows))
                if step % STATE_STEPS == 0:
                    self._state_sender.send(self._state())
            except (LinkClosed, TransportError):
                if not self._ended.is_set():
                    raise

    def _take_rows(self, step: int) -> None:
        with self._lock:
            rows = [(number, *one.step()) for number, one in enumerate(self._waterfalls.values())]
        self._rows.append([ROW_HEAD.pack(step, number, state, len(levels)) + levels for number, state, levels in rows])

    def _state(self) -> dict[str, Any]:
        with self._lock:
            waterfalls = [
                {"number": number, "flow": flow, "node": node, **one.axis}
                for number, ((flow, node), one) in enumerate(self._waterfalls.items())
            ]
            events = list(self._events)
        return {
            **self._observer.sample(),
            "endpoint": self._link.endpoint,
            "step_s": STEP_S,
            "waterfalls": waterfalls,
            "events": events,
        }
