"""Receive the messages of one flow or several; print them or their hashes, or write each to a file.

It listens, or connects to HOST, which shows what the program there sends.  On a terminal each message is a line, and
what the library knows is decoded: spectra, slots, arrays, JSON, text, MGEN.  Into a file or pipe goes the payload.

A terminal that is too slow does not hold up the senders: messages that it does not take in time are not shown, and
counted.  A file or pipe gets every message, and a flow waits for its reader.
"""

import argparse
import hashlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from twinlink import ConfigurationError, Link, Message, Receiver
from twinlink.events import Gap
from twinlink.mirror import MIRROR_FLOW, Observation
from twinlink.spelling import near
from twinlink.transports import PORT

from ..appkit import convert, linking
from ..appkit.console import DONE, NOT_MET, Output, Stop, log, writing
from ..appkit.formatting import decimal
from ..appkit.options import Parser
from ..process import files
from ..process.text import on_one_line, to_json
from . import flow_finder, known_flows, rate
from .display import Display, Suspension, is_terminal
from .flow_finder import FlowFinder, is_pattern
from .payload_line import payload_line

SILENT_S = 2.0  # without a message, with a peer: then the other flows are named
MAX_NAMED = 10
MAX_COLUMN = 20  # of a name that is longer, its line alone is not aligned
DELAY_WIDTH = 5
_NAME = "twinlink sub"
EXAMPLES = """
twinlink sub --flow telemetry             # listens; each payload as a line
twinlink sub 10.0.0.5 '*'                 # all that the program there sends
twinlink sub 10.0.0.5 spectrum 'control*' --print none
twinlink sub --output messages --idle 10  # a file each, until 10 s of silence
"""


def add_options(parser: Parser) -> None:
    """Declare the options."""
    linking.add_options(parser, listens=True, flow="data", host="a program")
    linking.add_mirror_option(parser)
    parser.add_argument(
        "flows",
        nargs="*",
        metavar="FLOW",
        help="flows in place of --flow: names, or patterns such as '*', which the shell takes in quotes",
    )
    parser.add_argument(
        "-c", "--count", type=convert.count, metavar="N", help="end after N messages; by default at Ctrl-C"
    )
    parser.add_argument(
        "--idle",
        type=convert.seconds,
        metavar="S",
        help="end when no message has arrived for S seconds after the first",
    )
    parser.add_argument(
        "--print",
        choices=("line", "text", "hex", "hash", "none"),
        help="what goes to stdout: a decoded line (line; default on a terminal), payload and newline (text; default "
        "elsewhere), payload in hex (hex), sequence, octets and SHA-256 (hash), or only the summary (none; default "
        "with --output)",
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="write each payload to a file FLOW-SESSION-SEQUENCE.bin there"
    )


def run(given: argparse.Namespace) -> int:
    """Receive until the count, the idle time or Ctrl-C; then print the summary."""
    _check_flows(given)
    given.print = given.print or ("none" if given.output else "line" if is_terminal() else "text")
    if given.output:
        given.output.mkdir(parents=True, exist_ok=True)
    subscriber = _Subscriber(given)
    try:
        with Stop() as stop, Suspension(given.connect is not None and subscriber.display is not None) as suspension:
            while not subscriber.is_done(stop):
                with linking.open_link(given) as link:
                    watch = linking.Watch(_NAME, link)
                    log(_NAME, f"{linking.endpoint(given)}, receives flow {subscriber.named}; Ctrl-C ends it")
                    if given.connect:
                        linking.tell_if_no_peer(link, lambda text: log(_NAME, text))
                    subscriber.receive(link, watch, stop, suspension)
                watch.tell()
                subscriber.missing += watch.missing
                if suspension.requested:
                    suspension.stop()
    finally:
        subscriber.close()
    return subscriber.summarise(stop.requested)


def _check_flows(given: argparse.Namespace) -> None:
    """Refuse what no flow can be called, and name what was probably meant."""
    flows = given.flows or []
    if len(flows) == 1 and flows[0].isdecimal() and given.connect and given.connect.endswith(f":{PORT}"):
        host = given.connect.removeprefix("tcp/").removesuffix(f":{PORT}")
        raise ConfigurationError(
            f"{flows[0]} looks like a port, which follows its host: {host}:{flows[0]}; a flow of this name is given "
            f"with --flow {flows[0]}"
        )
    for flow in flows or [given.flow]:
        flow_finder.check(flow)
    if len(flows) > 1 and all(Path(flow).exists() for flow in flows):
        log(_NAME, "the flows are the names of files here: if the shell has put them in place of *, write '*'")


class _Tally:
    """What has been received; ``count`` and ``idle_s``: when to end."""

    def __init__(self, count: int | None, idle_s: float | None) -> None:
        self.messages = self.octets = self.first_octets = 0
        self.first_s = self.last_s = 0.0
        self._count, self._idle_s = count, idle_s

    def add(self, message: Message) -> bool:
        """Count a message; False if it is one more than is wanted."""
        if self.is_full:
            return False
        self.last_s = time.monotonic()
        if not self.messages:
            self.first_s, self.first_octets = self.last_s, len(message.payload)
        self.messages += 1
        self.octets += len(message.payload)
        return True

    @property
    def is_full(self) -> bool:
        """Whether as many have come as are wanted."""
        return self._count is not None and self.messages >= self._count

    @property
    def is_done(self) -> bool:
        """Whether as many have come as are wanted, or none for long enough."""
        idle = self._idle_s is not None and self.messages and time.monotonic() - self.last_s >= self._idle_s
        return self.is_full or bool(idle)


class _Subscriber:
    """Receives, over one link or, where Ctrl-Z had it leave the first one, several in turn.

    Attributes:
        named: the flows as they were given.
        missing: messages that did not arrive.
        display: of the terminal; None where the output is a file or a pipe, or nothing is printed.
    """

    def __init__(self, given: argparse.Namespace) -> None:
        self._given, self._output = given, Output(given.json)
        self._patterns = list(dict.fromkeys(given.flows or [given.flow]))
        self.named = ", ".join(self._patterns)
        self._several = len(self._patterns) > 1 or is_pattern(self.named)
        self._found: list[str] = []
        self._tally = _Tally(given.count, given.idle)
        self._observation: Observation | None = None  # of a mirror
        self._finder: FlowFinder | None = None
        self.missing = 0
        self._silent_since_s = time.monotonic()
        self._others_named = False
        self.display: Display[Message] | None = None
        if is_terminal() and not given.output and (given.json or given.print != "none"):
            import numpy as np  # noqa: F401  (what takes long to load, before peers wait for this one)
            from rich import cells  # noqa: F401

            columns = Columns()
            self.display = Display(lambda message: _octets_of(given, message, columns).decode())

    def is_done(self, stop: Stop) -> bool:
        """Whether the end was requested, or is reached."""
        return stop.requested or self._tally.is_done

    def receive(self, link: Link, watch: linking.Watch, stop: Stop, suspension: Suspension) -> None:
        """Receive over a link until the end, or until Ctrl-Z."""
        display, tally, receivers = self.display, self._tally, list[Receiver]()

        def show(received: Message) -> None:
            for message in self._shown(received):
                if tally.add(message) and display is not None:
                    display.put(message, len(message.payload))

        def subscribe(flow: str) -> None:
            if flow not in (*self._patterns, *self._found):
                log(_NAME, "the endpoint is of a mirror" if flow == MIRROR_FLOW else f"found flow {flow}")
                self._found.append(flow)
            if flow == MIRROR_FLOW:
                self._observation = Observation()
            if display is None:
                receivers.append(link.receiver(flow))
            else:
                link.receiver(flow, handler=show)

        self._finder = finder = FlowFinder(link, self._patterns, subscribe)
        while not (self.is_done(stop) or suspension.requested or link.closed):
            watch.tell()
            self._name_others(link, finder)
            if display is None:
                self._take(link, tuple(receivers))
            elif display.failed is not None:
                raise display.failed
            else:
                stop.wait(linking.LOOK_S)

    def _name_others(self, link: Link, finder: FlowFinder) -> None:
        """Say once which flows there are, if none of those that were named brings anything."""
        if self._tally.messages or not link.peers():
            self._silent_since_s = time.monotonic()
        elif self._others_named or time.monotonic() - self._silent_since_s < SILENT_S:
            return
        elif others := finder.others():
            self._others_named = True
            names = f"{', '.join(others[:MAX_NAMED])}{', ...' if len(others) > MAX_NAMED else ''}"
            log(_NAME, f"nothing has come on flow {self.named}; the peers send on {names}{near(self.named, others)}")

    def _take(self, link: Link, receivers: tuple[Receiver, ...]) -> None:
        """Write a message of each flow, or wait for one.  The flows wait for the reader of the output."""
        waiting = [receiver for receiver in receivers if receiver.unread()]
        if not waiting:
            link._wait(lambda: any(receiver.unread() for receiver in receivers), linking.LOOK_S)
        for receiver in waiting:
            if (taken := receiver.take()) is None:
                continue
            for message in self._shown(taken):
                if self._tally.add(message):
                    self._write(message)

    def _shown(self, message: Message) -> Iterator[Message]:
        """The messages in one that a mirror has sent, as far as their flows are wanted; any other message itself."""
        if message.flow != MIRROR_FLOW or self._observation is None or self._finder is None:
            yield message
            return
        for one in self._observation.take(message):
            if not self._finder.matches(one.flow):
                continue
            if isinstance(one, Message):
                yield one
            elif isinstance(one, Gap):
                self.missing += one.end - one.first
            else:
                self.missing -= 1

    def _write(self, message: Message) -> None:
        if self._given.output:
            name = f"{message.flow}-{message.epoch:016x}-{message.sequence:08d}.bin"
            _write(self._given.output / name, bytes(message.payload))
        if self._given.json or self._given.print != "none":
            self._output.write(_octets_of(self._given, message))

    def close(self) -> None:
        """Show what waits, as far as the terminal takes it."""
        if self.display is not None:
            self.display.close()
        if self._several:
            known_flows.remember(self._found)

    def summarise(self, stopped: bool) -> int:
        """Print the summary; returns the exit code."""
        given, tally = self._given, self._tally
        interrupted = stopped and given.count is not None and not tally.is_full
        if interrupted:
            log(_NAME, f"interrupted: {tally.messages} of {given.count} messages were received")
        not_shown = self.display.dropped if self.display else 0
        # Between the first message and the last: the first one itself was sent before that time.
        speed = rate.figures(tally.messages - 1, tally.octets - tally.first_octets, tally.last_s - tally.first_s)
        missing = f"{self.missing} did not arrive" + (f", {not_shown} were not shown" if not_shown else "")
        summary = [f"received {tally.messages:,} messages, {tally.octets:,} B; {missing}", *rate.lines(speed)]
        self._output.emit(
            {
                "transport": given.transport,
                "flow": self.named,
                "received": tally.messages,
                "octets": tally.octets,
                "missing": self.missing,
                "not_shown": not_shown,
                "interrupted": interrupted,
                **speed,
            },
            "\n".join(summary) if given.print == "none" else None,
        )
        if not given.json and given.print != "none":
            for line in summary:  # stdout has the messages only
                log(_NAME, line)
        return DONE if tally.messages and not self.missing and not interrupted else NOT_MET


def _octets_of(given: argparse.Namespace, message: Message, columns: "Columns | None" = None) -> bytes:
    """What is written for a message; to a terminal, which has ``columns``, the payload of a peer goes escaped."""
    payload = bytes(message.payload)
    if given.json:
        record = {
            "type": "message",
            "flow": message.flow,
            "sequence": message.sequence,
            "node": message.node,
            "octets": len(payload),
            "sent_ns": message.sent_ns,
            "received_ns": message.received_ns,
            "sha256": hashlib.sha256(payload).hexdigest(),
        }
        return f"{to_json(record)}\n".encode()
    if given.print == "line":
        line = message_line(message, columns)
        return f"{_cut(line) if columns else line}\n".encode()
    if given.print == "hex":
        return payload.hex().encode() + b"\n"
    if given.print == "hash":
        return f"{message.sequence} {len(payload)} {hashlib.sha256(payload).hexdigest()}\n".encode()
    if columns:
        return f"{on_one_line(payload.decode(errors='backslashreplace'))}\n".encode()
    return payload + b"\n"


class Columns:
    """Aligns flow, sender and number on a terminal: each column is as wide as the widest so far, up to a limit."""

    def __init__(self) -> None:
        self._widths: dict[int, int] = {}

    def align(self, cells: list[str]) -> list[str]:
        """The cells, filled with spaces."""
        for place, cell in enumerate(cells):
            fits = len(cell) <= MAX_COLUMN
            self._widths[place] = max(self._widths.get(place, 0), len(cell) if fits else 0)
        return [cell.ljust(self._widths[place]) for place, cell in enumerate(cells)]


def message_line(message: Message, columns: Columns | None = None) -> str:
    """Flow, sender, number and delay of a message, and what it holds; the delay has what the clocks differ by."""
    delay = decimal((message.received_ns - message.sent_ns) / 1e6)
    cells = [message.flow, on_one_line(message.node or f"{message.epoch:016x}"), f"#{message.sequence}"]
    if columns is not None:
        cells, delay = columns.align(cells), delay.rjust(DELAY_WIDTH)
    return f"{' '.join(cells)} {delay} ms  {payload_line(message.payload)}"


def _cut(line: str) -> str:
    """As much of a line as the terminal is wide."""
    from rich.cells import cell_len, set_cell_size

    width = shutil.get_terminal_size().columns
    return line if cell_len(line) <= width else f"{set_cell_size(line, width - 1)}…"


def _write(path: Path, payload: bytes) -> None:
    """Write the file completely or not at all."""
    with writing(path), files.whole(path) as part:
        part.write_bytes(payload)
