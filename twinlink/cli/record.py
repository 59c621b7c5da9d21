"""Record what arrives on a link, and its acks and events, into an MCAP file that says what is missing from it.

It listens, or connects to HOST, and acknowledges what it receives as any other peer.  A program that records what it
sends itself calls `link.record(FILE)`.  At the end, and where the next file begins, a manifest names what was received,
repaired and lost; `twinlink verify FILE` holds the file to it.

With --before nothing is written until an event, a message, or SIGUSR1 says so.
"""

import argparse
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from twinlink.spelling import near

from ..appkit import convert, linking, outputs, recorded_link
from ..appkit.console import DONE, FAILED, NOT_MET, Output, Stop, log
from ..appkit.options import Parser
from . import flow_finder
from .flow_finder import FlowFinder

if TYPE_CHECKING:
    from twinlink.link import Link
    from twinlink.recording import Recorder
    from twinlink.recording.options import RecordingOptions

_NAME = "twinlink record"
EXAMPLES = """
twinlink record --out run.mcap                     # listens; Ctrl-C ends it
twinlink record 10.0.0.5 --out run.mcap --flows 'spectrum,control*'
twinlink record --out run.mcap --rotate-time 3600 --min-free 5GB
twinlink record --out run.mcap --before 10 --after 20 --on gap,interferer
"""


def add_options(parser: Parser) -> None:
    """Declare the options."""
    linking.add_link_options(parser, listens=True, host="a program")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the recording, such as run.mcap")
    flow_finder.add_option(parser)
    parser.add_argument("--time", type=convert.above_0, metavar="S", help="end after S seconds; by default at Ctrl-C")
    parser.add_argument(
        "--rotate-size",
        type=convert.octets,
        default=convert.octets("1GB"),
        metavar="B",
        help="begin the next file, run.0001.mcap, when one has so many octets",
    )
    parser.add_argument("--rotate-time", type=convert.above_0, metavar="S", help="begin the next file after S seconds")
    parser.add_argument(
        "--min-free",
        type=convert.octets,
        default=convert.octets("256MB"),
        metavar="B",
        help="write nothing while the disk has less than this free",
    )
    parser.add_argument(
        "--queue",
        type=convert.octets,
        default=convert.octets("64MB"),
        metavar="B",
        help="octets that may wait for the disk; what comes beyond is left out, and named",
    )
    triggered = parser.group("triggered recording")
    triggered.add_argument(
        "--before",
        type=convert.seconds,
        metavar="S",
        help="write nothing until triggered, then also what came in the S seconds before, as far as --queue holds it",
    )
    triggered.add_argument(
        "--after",
        type=convert.seconds,
        metavar="S",
        help="end the file S seconds after the last trigger; the next one begins the next file",
    )
    triggered.add_argument(
        "--on",
        type=convert.parts,
        default=(),
        metavar="WHAT,...",
        help="what triggers it besides SIGUSR1: events such as gap, lost or peer-down; interferer, for which a twin "
        "has PRBs blocked; flow:NAME, a message on a flow",
    )
    outputs.add_option(parser)
    parser.add_argument("--json", action="store_true", help="the summary as JSON on stdout")


def run(given: argparse.Namespace) -> int:
    """Record until Ctrl-C; then print the summary."""
    from twinlink.recording import RecorderOptions  # which takes long to load, before peers find the link

    for flow in given.flows:
        flow_finder.check(flow)
    outputs.refuse_existing("--out", [given.out], given.overwrite)
    options: RecordingOptions = {
        "flows": given.flows,
        "queue_octets": given.queue,
        "rotate_octets": given.rotate_size,
        "rotate_s": given.rotate_time,
        "min_free_octets": given.min_free,
        "overwrite": recorded_link.may_replace(given.out, given.overwrite),
        "before_s": given.before,
        "after_s": given.after,
        "on": given.on,
    }
    RecorderOptions.checked(options)
    recorders: list[Recorder] = []

    def record(link: "Link") -> None:
        recorders.append(link.record(given.out, **options))

    with Stop() as stop, linking.open_link(given, record) as link:
        (recorder,) = recorders
        signal.signal(signal.SIGUSR1, lambda *_: recorder.trigger("SIGUSR1"))
        watch = linking.Watch(_NAME, link)
        finder = FlowFinder(link, given.flows, lambda flow: link.receiver(flow, handler=lambda message: None))
        when = "records" if given.before is None else "waits for a trigger to record"
        log(_NAME, f"{linking.endpoint(given)}, {when} to {given.out}; Ctrl-C ends it")
        if given.connect:
            linking.tell_if_no_peer(link, lambda text: log(_NAME, text))
        waits = linking.LOOK_S
        rounds, told = None if given.time is None else max(1, round(given.time / waits)), 0
        while not (stop.wait(waits) or link.closed or rounds == 0):
            watch.tell()
            if recorder.triggered is not None and len(recorder.files) > told:
                told = len(recorder.files)
                log(_NAME, f"triggered by {recorder.triggered}: records to {recorder.files[-1]}")
            rounds = None if rounds is None else rounds - 1
        others = finder.others()
    watch.tell()
    recorder.close()
    counts = recorder.stats()
    if not counts["messages"] and others:
        log(_NAME, f"the peers send on {', '.join(others[:10])}{near(','.join(given.flows), others)}")
    if recorder.problem is not None:
        log(_NAME, recorder.problem)
    Output(given.json).emit(recorded_link.fields(recorder), recorded_link.text(recorder))
    if recorder.failed:
        return FAILED
    if not recorder.files:  # nothing has triggered it
        return DONE
    return DONE if counts["messages"] and not (counts["left_out"] or counts["missing"]) else NOT_MET
