"""Record what arrives on a link, and its acks and events, into an MCAP file that says what is missing from it.

It listens, or connects to HOST, and acknowledges what it receives as any other peer.  A program that records what it
sends itself calls `link.record(FILE)`.  At the end, and where the next file begins, a manifest names what was received,
repaired and lost; `twinlink verify FILE` holds the file to it.
"""

import argparse
from pathlib import Path

from twinlink.spelling import near

from ..appkit import convert, linking, outputs, recorded_link
from ..appkit.console import DONE, FAILED, NOT_MET, Output, Stop, log
from ..appkit.options import Parser
from . import flow_finder
from .flow_finder import FlowFinder

_NAME = "twinlink record"
EXAMPLES = """
twinlink record --out run.mcap                     # listens; Ctrl-C ends it
twinlink record 10.0.0.5 --out run.mcap --flows 'spectrum,control*'
twinlink record --out run.mcap --rotate-time 3600 --min-free 5GB
"""


def add_options(parser: Parser) -> None:
    """Declare the options."""
    linking.add_link_options(parser, listens=True, host="a program")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the recording, such as run.mcap")
    parser.add_argument(
        "--flows",
        type=convert.parts,
        default=("*",),
        metavar="FLOW,...",
        help="only these flows: names, or patterns such as '*', which the shell takes in quotes",
    )
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
    outputs.add_option(parser)
    parser.add_argument("--json", action="store_true", help="the summary as JSON on stdout")


def run(given: argparse.Namespace) -> int:
    """Record until Ctrl-C; then print the summary."""
    import twinlink.recording  # noqa: F401  (what takes long to load, before peers find the link)

    for flow in given.flows:
        flow_finder.check(flow)
    outputs.refuse_existing("--out", [given.out], given.overwrite)
    with Stop() as stop, linking.open_link(given) as link:
        recorder = link.record(
            given.out,
            flows=given.flows,
            queue_octets=given.queue,
            rotate_octets=given.rotate_size,
            rotate_s=given.rotate_time,
            min_free_octets=given.min_free,
            overwrite=recorded_link.may_replace(given.out, given.overwrite),
        )
        watch = linking.Watch(_NAME, link)
        finder = FlowFinder(link, given.flows, lambda flow: link.receiver(flow, handler=lambda message: None))
        log(_NAME, f"{linking.endpoint(given)}, records to {given.out}; Ctrl-C ends it")
        if given.connect:
            linking.tell_if_no_peer(link, lambda text: log(_NAME, text))
        waits = linking.LOOK_S
        rounds = None if given.time is None else max(1, round(given.time / waits))
        while not (stop.wait(waits) or link.closed or rounds == 0):
            watch.tell()
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
    return DONE if counts["messages"] and not (counts["left_out"] or counts["missing"]) else NOT_MET
