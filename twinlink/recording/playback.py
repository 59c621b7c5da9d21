"""Plays recordings into a link: the messages in their order, at the recorded pace or another, with their gaps."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import Literal, Protocol, get_args

from ..errors import ConfigurationError, SendTimeout
from ..protocol.session import Pace
from ..protocol.wire import RECEIVED, SENT
from ..runtime.sender import Sender
from .message_order import Key, MessageOrder, Played
from .recorded_files import SeriesFile, opened

Direction = Literal["received", "sent", "both"]
LOOK_S = 0.1  # how often `wait` is called, at least
MAX_SKIPPED = 1_000_000  # numbers of a gap; what claims more is damaged


class Sending(Protocol):
    """What it needs of a `twinlink.Link`."""

    def sender(self, flow: str, *, pace: Pace | None = None) -> Sender:
        """The sending end of a flow."""


class Playback:
    """What is to be played of the files of one recording; `run` plays it, as often as it is called.

    Files are read as they are played, each chunk once; what cannot be read of them is left out, and in ``problems``.

    Attributes:
        directions: that are played: ``received``, ``sent`` or both.
        others: flows of the other direction, as far as the manifests name them.
        next_file: name of the file, not given, in which the recording goes on; None: there is none.
        begin_ns, end_ns: recorded time of what is played, from the first to the last.
        passes: how often the end was reached.
        messages, octets: that were sent; octets of payload.
        skipped: messages that the recording lacks, each of which is in a gap of what was sent.
        late: messages that came so late that others were played before them.
        behind_s: how late the last message was sent; most_behind_s: the most of it.  0 flat out.
        problems: what is damaged or cut, for a person.
    """

    def __init__(
        self,
        paths: Sequence[str | PathLike[str]],
        *,
        flows: Sequence[str] = ("*",),
        direction: Direction | None = None,
        start_s: float = 0.0,
        end_s: float | None = None,
    ) -> None:
        """Args:
            paths: of one recording, in any order.
            flows: names, or patterns as of a shell.
            direction: what is played; None: what was received, or, where nothing was, what was sent.
            start_s, end_s: from the first file's begin; None: to the end.

        Raises OSError; RecordingError where a file is no recording, or of another one; ConfigurationError.
        """
        if isinstance(flows, str) or direction not in (None, *get_args(Direction)):
            raise ConfigurationError(f"flows is a list, and direction received, sent or both, not {direction!r}")
        if not 0 <= start_s < (math.inf if end_s is None else end_s):
            raise ConfigurationError(f"the start, {start_s!r} s, must be before the end, {end_s!r} s, and not below 0")
        if not paths:
            raise ConfigurationError("there is no file to play")
        self.problems: list[str] = []
        self.passes = self.messages = self.octets = self.skipped = self.late = 0
        self.behind_s = self.most_behind_s = 0.0
        self._flows = tuple(flows)
        self._paths = [Path(path) for path in paths]
        with ExitStack() as stack:
            files = self._open(stack)
            begin_ns = files[0].begin_ns
            self.directions, self.others = self._chosen(files, direction)
            last_ns = max(file.end_ns for file in files)
            self.next_file = files[-1].next_file
        self._seeks = start_s > 0
        self.begin_ns = begin_ns + round(start_s * 1e9)
        self._cut_ns = None if end_s is None else begin_ns + round(end_s * 1e9)
        self.end_ns = last_ns if self._cut_ns is None else min(self._cut_ns, last_ns)
        if self.begin_ns > last_ns:
            raise ConfigurationError(
                f"the recording ends after {(last_ns - begin_ns) / 1e9:.3f} s, before {start_s:g} s: begin earlier"
            )

    def _open(self, stack: ExitStack) -> list[SeriesFile]:
        files = opened(self._paths, stack)
        for problem in (one for file in files for one in file.problems):
            self._note(problem)
        return files

    def _note(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def _chosen(self, files: list[SeriesFile], direction: Direction | None) -> tuple[tuple[str, ...], list[str]]:
        """The directions that are played, and the flows of the other one.  Raises ConfigurationError: nothing is."""
        there: dict[str, set[str]] = {RECEIVED: set(), SENT: set()}
        for file in files:
            for found, flow in file.flows(stop=lambda found, flow: found == RECEIVED and self._wants(flow)):
                there[found].add(flow)
        wanted = {found: sorted(filter(self._wants, flows)) for found, flows in there.items()}
        first = RECEIVED if wanted[RECEIVED] else SENT
        chosen = (RECEIVED, SENT) if direction == "both" else (direction or first,)
        if not any(wanted[found] for found in chosen):
            has = "; ".join(f"{found}: {', '.join(sorted(flows)[:10])}" for found, flows in there.items() if flows)
            raise ConfigurationError(
                f"nothing in the recording was {' or '.join(chosen)} on {', '.join(self._flows)}; "
                f"it has {has or 'no message'}"
            )
        return chosen, [flow for found in (RECEIVED, SENT) if found not in chosen for flow in wanted[found]]

    def _wants(self, flow: str) -> bool:
        return any(fnmatchcase(flow, pattern) for pattern in self._flows)

    def items(self) -> Iterator[Played]:
        """What is played, once, in its order; see `Played`."""
        order = MessageOrder()
        with ExitStack() as stack:
            files = self._open(stack)
            for file in files:
                if not self._seeks:
                    for key, first, _ in file.spans():
                        order.begin(key, first)
                yield from self._items_of(file, order)
            yield from order.rest(self.end_ns)
            if self._cut_ns is None:
                for file in files:
                    for key, _, end in file.spans():
                        if self._is_played(key):
                            yield from order.end(key, end, self.end_ns)
        self.late += order.late

    def _items_of(self, file: SeriesFile, order: MessageOrder) -> Iterator[Played]:
        begin_ns = self.begin_ns if self._seeks else 0
        for one in file.records(begin_ns, self._cut_ns):
            if isinstance(one, str):
                self._note(one)
                continue
            key, log_ns, sequence, payload = one
            if self._is_played(key) and begin_ns <= log_ns and (self._cut_ns is None or log_ns < self._cut_ns):
                yield from (
                    order.gap(key, sequence, log_ns) if payload is None else order.add(key, sequence, log_ns, payload)
                )

    def _is_played(self, key: Key) -> bool:
        return key[0] in self.directions and self._wants(key[1])

    def run(
        self,
        link: Sending,
        *,
        speed: float = 1.0,
        loops: float = 1,
        wait: Callable[[float], bool] | None = None,
    ) -> bool:
        """Send it; False: the end was asked for.  The last messages may not be acknowledged when it returns.

        Each flow is sent on the flow of its name, all of its senders together, in the order of recorded time.  A
        message leaves at its time from the start, so that what is late does not delay what follows.  Where a peer takes
        less than that, it waits for the peer (`behind_s`); it drops nothing.

        Args:
            link: an open link; without a peer messages are lost, see `Link.wait_ready`.
            speed: 2: twice as fast as recorded; `math.inf`: as fast as the peers take it.
            loops: how often; `math.inf`: without end.
            wait: sleeps up to so many seconds, True: ends; called ten times a second or more.

        Raises LinkClosed, PayloadTooLarge, TransportError, and ConfigurationError: another pace of a flow is in use.
        """
        if not speed > 0:
            raise ConfigurationError(f"the speed is above 0, and math.inf is flat out, not {speed!r}")
        pace = _Pace(speed, wait or threading.Event().wait)
        passes = 0
        while passes < loops:
            before = self.messages
            for item in self.items():
                if not pace.until(item.due_ns - self.begin_ns):
                    return False
                if not self._send(link, item, pace):
                    return False
                self.behind_s = pace.behind_s
                self.most_behind_s = max(self.most_behind_s, self.behind_s)
            passes += 1
            self.passes += 1
            if self.messages == before:
                break
            pace.restart(self.end_ns - self.begin_ns)
        return True

    def _send(self, link: Sending, item: Played, pace: "_Pace") -> bool:
        sender = link.sender(item.flow, pace="slowest")
        if item.skipped > MAX_SKIPPED:
            self._note(f"flow {item.flow}: {item.skipped} messages are missing at once, which is not shown as a gap")
        elif item.skipped:
            sender.skip(item.skipped)
            self.skipped += item.skipped
        while item.payload is not None:
            try:
                sender.send(item.payload)
            except SendTimeout:
                if not pace.look():
                    return False
                self.behind_s = pace.behind_s
                continue
            self.messages += 1
            self.octets += len(item.payload)
            break
        return True


class _Pace:
    """The schedule: absolute, so that it does not drift."""

    def __init__(self, speed: float, wait: Callable[[float], bool]) -> None:
        self._speed, self._wait = speed, wait
        self._start_s = self._looked_s = time.monotonic()
        self._due_s = self._start_s

    def restart(self, passed_ns: int) -> None:
        """The next pass begins when this one has ended."""
        self._start_s += passed_ns / 1e9 / self._speed

    @property
    def behind_s(self) -> float:
        """How late it is."""
        return 0.0 if math.isinf(self._speed) else max(0.0, time.monotonic() - self._due_s)

    def until(self, after_ns: int) -> bool:
        """Sleep until so much recorded time has passed since the start; False: the end was asked for."""
        self._due_s = self._start_s + after_ns / 1e9 / self._speed
        while not math.isinf(self._speed) and (left_s := self._due_s - time.monotonic()) > 0:
            if not self.look(min(left_s, LOOK_S)):
                return False
        return time.monotonic() - self._looked_s < LOOK_S or self.look()

    def look(self, seconds: float = 0.0) -> bool:
        """Call ``wait``; False: the end was asked for."""
        ends = self._wait(seconds)
        self._looked_s = time.monotonic()
        return not ends


def play(
    path: str | PathLike[str],
    link: Sending,
    *,
    speed: float = 1.0,
    flows: Sequence[str] = ("*",),
    direction: Direction | None = None,
    start_s: float = 0.0,
    end_s: float | None = None,
) -> Playback:
    """Play a recording into a link once; returns when it is sent, with what was.  See `Playback` for the arguments."""
    playback = Playback([path], flows=flows, direction=direction, start_s=start_s, end_s=end_s)
    playback.run(link, speed=speed)
    return playback
