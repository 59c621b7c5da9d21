"""Send the messages of a recording into a link, flow by flow, at their pace and with their gaps.

It connects, by default to a twin on this host, or listens.  FILE is a recording of `twinlink record`; several are the
files of one recording, in any order.  What was received is sent, or, where nothing was, what had been sent.  A message
that is missing from the recording leaves its time empty, and is a gap for the receiver.  (`twinlink-replay`, a program
of its own, is the twin.)
"""

import argparse
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

from twinlink import Link
from twinlink.errors import ConfigurationError
from twinlink.process import address

from ..appkit import convert, linking
from ..appkit.console import DONE, NOT_MET, Output, Stop, log
from ..appkit.options import Parser
from ..process.text import on_one_line
from . import flow_finder, rate

if TYPE_CHECKING:
    from twinlink.recording import Playback

_NAME = "twinlink replay"
EXAMPLES = """
twinlink replay run.mcap                        # to the twin on this host
twinlink replay run.mcap --speed 4 --from 60    # from second 60 on
twinlink replay run.mcap run.0001.mcap --connect 10.0.0.5 --speed max
twinlink replay run.mcap --listen 0.0.0.0 --loop forever --flows 'spectrum*'
"""
BEHIND_S, BEHIND_EVERY_S = 0.5, 5.0
ACK_S = 5.0


def add_options(parser: Parser) -> None:
    """Declare the options."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files of one recording")
    linking.add_link_options(parser, listens=False)
    parser.add_argument(
        "--speed",
        type=_speed,
        default=1.0,
        metavar="X",
        help="times the recorded pace, such as 4 or 1/2; max: as fast as the peers take it",
    )
    parser.add_argument(
        "--from", dest="start", type=convert.seconds, default=0.0, metavar="S", help="begin S seconds from its start"
    )
    parser.add_argument("--to", dest="end", type=convert.above_0, metavar="S", help="end S seconds from its start")
    parser.add_argument("--loop", type=_loops, default=1, metavar="N", help="play it N times; forever: until Ctrl-C")
    flow_finder.add_option(parser)
    parser.add_argument(
        "--direction",
        choices=("received", "sent", "both"),
        help="what the recording side received, sent, or both; by default what it received, if there is any",
    )
    parser.add_argument(
        "--timeout",
        type=convert.seconds,
        metavar="S",
        help="fail without a peer after S seconds, by default never; and wait for the last acks, by default 5 s",
    )
    parser.add_argument("--json", action="store_true", help="the summary as JSON on stdout")


def _speed(text: str) -> float:
    try:
        return math.inf if text == "max" else convert.factor(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"a number such as 4 or 1/2, or max, is expected, not {text!r}") from None


def _loops(text: str) -> float:
    return math.inf if text == "forever" else convert.count(text)


def run(given: argparse.Namespace) -> int:
    """Replay; then print the summary."""
    from twinlink.recording import Playback

    for flow in given.flows:
        flow_finder.check(flow)
    for path in given.files:
        if address.is_meant(str(path)) and not path.exists():
            raise ConfigurationError(f"{path} is no file; the peer's address follows --connect: --connect {path}")
    if given.end is not None and given.end <= given.start:
        raise ConfigurationError(f"--to {given.end:g} is not after --from {given.start:g}")
    playback = Playback(given.files, flows=given.flows, direction=given.direction, start_s=given.start, end_s=given.end)
    if playback.next_file is not None:
        log(_NAME, f"the recording goes on in {on_one_line(playback.next_file)}, which is not given")
    told = len(playback.problems)
    for problem in playback.problems:
        log(_NAME, problem)
    with Stop() as stop, linking.open_link(given) as link:
        watch = linking.Watch(_NAME, link)
        log(_NAME, f"{linking.endpoint(given)}, {_plan(given, playback)}; Ctrl-C ends it")
        _wait_for_peer(given, link, stop, watch)
        began_s, ended = time.monotonic(), False
        if not stop.requested:
            ended = playback.run(link, speed=given.speed, loops=given.loop, wait=_Wait(stop, watch, playback))
            _wait_for_acks(given, link, stop)
        elapsed_s = time.monotonic() - began_s
    stats = link.stats()["sent"].values()  # of the end: closing waits for acks, too
    lost = sum(one["lost"] + one["outstanding"] for one in stats) - playback.skipped
    watch.tell()
    for problem in playback.problems[told:]:
        log(_NAME, problem)
    if ended and not playback.messages:
        log(_NAME, f"nothing was {' or '.join(playback.directions)} on {', '.join(given.flows)} in this time")
    if not ended and given.loop != math.inf and playback.messages:
        log(_NAME, f"interrupted after {elapsed_s:.1f} s")
    _summarise(given, playback, lost, elapsed_s)
    done = (ended or given.loop == math.inf) and playback.messages and not (lost or playback.problems)
    return DONE if done else NOT_MET


class _Wait:
    """What the playback sleeps with: it tells of the link's events, and where the peers do not keep up."""

    def __init__(self, stop: Stop, watch: linking.Watch, playback: "Playback") -> None:
        self._stop, self._watch, self._playback = stop, watch, playback
        self._told_s = 0.0

    def __call__(self, seconds: float) -> bool:
        self._watch.tell()
        behind_s, now_s = self._playback.behind_s, time.monotonic()
        if behind_s > BEHIND_S and now_s - self._told_s > BEHIND_EVERY_S:
            self._told_s = now_s
            log(_NAME, f"{behind_s:.1f} s behind: the peer, or this host, takes less than was recorded")
        return self._stop.wait(seconds)


def _plan(given: argparse.Namespace, playback: "Playback") -> str:
    seconds = (playback.end_ns - playback.begin_ns) / 1e9
    pace = (
        "flat out" if math.isinf(given.speed) else "as recorded" if given.speed == 1 else f"{given.speed:g} x as fast"
    )
    text = f"replays {seconds:.3f} s of what was {' and '.join(playback.directions)}, {pace}"
    if playback.others and given.direction is None:
        text += f" (--direction sent has {', '.join(playback.others[:5])}, which that side sent)"
    return text


def _wait_for_peer(given: argparse.Namespace, link: Link, stop: Stop, watch: linking.Watch) -> None:
    """Return when a peer is up, or the end was requested.  Raises PeerTimeout."""
    if given.timeout is not None:
        linking.wait_for_peer(link, stop, given, _NAME, None)
        return
    linking.tell_if_no_peer(link, lambda text: log(_NAME, text))
    while not (link.peers() or link.closed or stop.wait(linking.LOOK_S)):
        watch.tell()


def _wait_for_acks(given: argparse.Namespace, link: Link, stop: Stop) -> None:
    """Return when all is acknowledged, or no ack has come for a while."""
    patience_s = ACK_S if given.timeout is None else given.timeout
    left, moved_s = -1, time.monotonic()
    while link.peers() and time.monotonic() - moved_s < patience_s:
        before, left = left, sum(one["outstanding"] for one in link.stats()["sent"].values())
        if not left or stop.wait(0.02):
            return
        if left != before:
            moved_s = time.monotonic()


def _summarise(given: argparse.Namespace, playback: "Playback", lost: int, elapsed_s: float) -> None:
    counts = {"messages": playback.messages, "octets": playback.octets, "missing": playback.skipped, "lost": lost}
    speed = rate.figures(playback.messages, playback.octets, elapsed_s)
    passes = f" in {playback.passes:,} passes" if given.loop != 1 else ""
    text = f"replayed {playback.messages:,} messages, {playback.octets:,} B{passes}; {lost:,} lost"
    if playback.skipped:
        text += f"; {playback.skipped:,} that the recording lacks were left out as gaps"
    if playback.late:
        text += f"; {playback.late:,} behind later ones, as they had been recorded"
    if playback.most_behind_s > BEHIND_S:
        text += f"; up to {playback.most_behind_s:.1f} s behind"
    details = {"late": playback.late, "passes": playback.passes, "most_behind_s": playback.most_behind_s}
    record = {**counts, **details, "directions": list(playback.directions), "problems": playback.problems, **speed}
    Output(given.json).emit(record, "\n".join([text, *rate.lines(speed)]))
