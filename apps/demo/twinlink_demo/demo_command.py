"""Run the whole path on this machine, with real parts, and report on it; about a minute.

For each transport: a RAN emulator plays a recorded uplink, the exporter sends it to the twin's GNU Radio replay, the
twin finds the interferer and has its PRBs blocked. Report, figures and raw files go to --out (docs/demo.md).
"""

import argparse
from pathlib import Path

from twinlink_live import serving

from twinlink.appkit import convert, outputs
from twinlink.appkit.console import Output, Stop, log, wrapped, writing
from twinlink.appkit.options import Parser

from . import pace

EXAMPLES = """
twinlink demo  # a minute; the report is in demo-out/
twinlink demo --transports zenoh --seconds 60 --out run1
twinlink demo --pace 0.5  # half as fast, for a busy machine
twinlink demo --secure  # over encrypted links, with signed decisions
twinlink demo --recording capture.sigmf-meta --json
"""
OUT = Path("demo-out")
_MAX_SECONDS = 600.0  # everything that was played is compared in memory
_seconds = convert.number(
    lambda value: 0 < value <= _MAX_SECONDS, f"a time above 0 s and up to {_MAX_SECONDS:.0f} s is expected"
)
_pace = convert.number(
    lambda value: pace.LEAST <= value <= pace.RECORDED, f"a factor from {pace.LEAST:g} to 1 is expected"
)


def add_options(parser: Parser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help=f"where the results go; default {OUT}, which each demo makes again"
    )
    outputs.add_option(parser)
    parser.add_argument(
        "--transports", type=convert.names, default="zeromq,zenoh", metavar="NAME[,NAME]", help="one after the other"
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=22.0,
        metavar="S",
        help="least time to play for each transport, at the recorded pace; whole rounds of the recording are played",
    )
    parser.add_argument(
        "--pace",
        type=_pace,
        metavar="FACTOR",
        help=f"of the recorded pace, {pace.LEAST:g} to 1; if not given, the recorded one, or a slower one where the "
        "first seconds run late",
    )
    parser.add_argument(
        "--recording", type=Path, metavar="FILE", help="another SigMF recording than examples/recordings/uplink-106prb"
    )
    parser.add_argument(
        "--secure", action="store_true", help="with identities: the link is encrypted, and decisions are signed"
    )
    serving.add_option(parser)
    parser.add_argument("--json", action="store_true", help="the summary on stdout")


def run(given: argparse.Namespace) -> int:
    """Run it; 1 when a requirement is not met, 2 when a part failed."""
    from twinlink_ran_emulator.recording import example

    from . import demo, verdict

    transports, recording = tuple(given.transports.split(",")), given.recording or example()
    out, overwrite = given.out or OUT, given.overwrite or given.out is None
    settings = demo.Settings(out, transports, given.seconds, recording, given.secure, overwrite, given.pace, given.live)
    serving.refuse_beyond_loopback(given.live)
    if given.live is not None:
        log("twinlink demo", f"open http://{given.live} in a browser: it shows the twin's side once that has started")
    with writing(out), Stop() as stop:
        summary = demo.run(settings, stop)
    Output(given.json).emit(summary, wrapped(verdict.text(summary)))
    log("twinlink demo", f"report: {out / 'report.html'}")
    return int(summary["exit_code"])
