"""Progress of the demo on stderr: a live view on a terminal, plain lines elsewhere."""

import contextlib
from collections import deque
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from twinlink.appkit.console import log
from twinlink.prbs import format_prbs

TITLES = {"emulator": "gNB: RAN emulator", "exporter": "gNB: exporter", "replay": "twin: GNU Radio replay"}
STORY = 8  # lines of recent events
COLOURS = {"running": "green", "ended": "dim", "-": "dim"}


class Progress:
    """The progress display, updated by the demo and its sessions; a context manager.

    Args:
        total: transports to run.
    """

    def __init__(self, total: int) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._live: Live | None = None
        self._total = total
        self._number = 0
        self._head, self._now = "", ""
        self._seconds, self._played = 0.0, 0.0
        self._states: dict[str, str] = {}
        self._story: deque[Text] = deque(maxlen=STORY)
        self._last: dict[str, tuple[str, str]] = {}
        self._begin_ns: int | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(self._view(), console=self._console, refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            with contextlib.suppress(OSError):
                self._live.stop()
            self._live = None

    def begin(self, transport: str, seconds: float, pace: float = 1.0, again: bool = False) -> None:
        """A transport's run begins, ``again`` at another pace, and plays for that long."""
        self._number += not again
        self._head = f"{transport} ({self._number} of {self._total})"
        self._seconds, self._played, self._begin_ns = seconds, 0.0, None
        self._states, self._last = {}, {}
        self._story.clear()
        slower = "" if pace == 1 else f", at {pace:g} of the recorded pace"
        self._say(f"{self._head}: {seconds:.0f} s of uplink spectrum{slower}")

    def phase(self, text: str) -> None:
        """Set the current phase."""
        self._now = text
        self._say(f"{self._head}: {text}" if self._head else text)
        self._draw()

    def parts(self, states: dict[str, str]) -> None:
        """Set the state of each process."""
        self._states = states
        self._draw()

    def played(self, seconds: float) -> None:
        """Set how long the recording has been playing."""
        self._played = seconds
        self._draw()

    def event(self, part: str, event: dict[str, Any]) -> None:
        """A process logged an event: show those of interest."""
        if event["event"] == "playing" and part == "emulator":
            self._begin_ns = event["time_ns"]
        told = _told(part, event)
        about = event["event"] if event["event"] == "control" else part
        if told is None or told == self._last.get(about):  # a renewed block is not shown again
            return
        self._last[about] = told
        text, style = told
        when = "" if self._begin_ns is None else f"{(event['time_ns'] - self._begin_ns) / 1e9:7.2f} s  "
        self._story.append(Text(when + text, style=style))
        self._say(when + text)

    def result(self, text: str) -> None:
        """Print a line that stays."""
        if self._live:
            self._live.console.print(Text(f"twinlink demo: {text}"))
        else:
            self._say(text)

    def _say(self, text: str) -> None:
        if self._live is None:
            log("twinlink demo", text)

    def _draw(self) -> None:
        if self._live:
            with contextlib.suppress(OSError):
                self._live.update(self._view())

    def _view(self) -> Group:
        table = Table.grid(padding=(0, 2))
        for name, title in TITLES.items():
            state = self._states.get(name, "-")
            table.add_row(title, Text(state, style=COLOURS.get(state, "red")))
        bar = Table.grid(padding=(0, 2))
        share = ProgressBar(total=max(self._seconds, 1e-9), completed=self._played, width=40)
        bar.add_row(share, f"{self._played:.1f} of {self._seconds:.1f} s played")
        head = Text(f"twinlink demo  {self._head}", style="bold")
        return Group(head, table, bar, Text(self._now, style="cyan"), *self._story)


def _told(part: str, event: dict[str, Any]) -> tuple[str, str] | None:
    """An event in words, and its style; None if it is not shown."""
    name, prbs = event["event"], format_prbs(event.get("prbs") or [])
    if name == "process":
        return f"{TITLES[part]} is process {event['pid']}", "dim"
    match part, name:
        case "emulator", "interferer_on":
            return f"interferer on PRBs {prbs} (record {event.get('record')})", "red"
        case "emulator", "interferer_off":
            return f"interferer gone from PRBs {prbs} (record {event.get('record')})", "yellow"
        case "emulator", "control":
            return f"gNB keeps UEs out of PRBs {prbs}" if prbs else "gNB no longer blocks PRBs", "green"
        case "replay", "interference":
            return f"twin sees interference on PRBs {prbs}", "magenta"
        case "replay", "interference-ended":
            return "twin no longer sees interference", "magenta"
        case "replay", "gap":
            return f"twin misses messages {event.get('first')} to {event.get('end', 0) - 1}", "bold red"
        case "replay", "sync":
            return f"twin is {event.get('state')}", "dim" if event.get("state") == "in-sync" else "bold red"
        case "replay" | "exporter", "peer-down":
            return f"the {part} says: {event.get('node')} is gone ({event.get('reason')})", "yellow"
        case "exporter", "block-rejected":
            return f"the exporter refused a block: {event.get('reason')}", "bold red"
    return None
