"""Write recordings as SigMF, Parquet, numpy or E3RT files.

The files of one recording are taken in order.  The suffix of --out says what is written: .sigmf-meta the I/Q with
annotations, .parquet a table of messages or of the power per PRB, .npz the arrays, .e3rt a trace of slots.  What the
recording lacks is named there, too.
"""

import argparse
from importlib import import_module
from pathlib import Path

from twinlink.appkit import outputs
from twinlink.appkit.console import DONE, NOT_MET, Output, log, writing
from twinlink.appkit.options import Parser
from twinlink.cli import flow_finder
from twinlink.errors import ConfigurationError

from .request import Outcome, Request

_NAME = "twinlink export"
FORMATS = {".sigmf-meta": "sigmf", ".sigmf-data": "sigmf", ".parquet": "parquet", ".npz": "npz", ".e3rt": "e3rt"}
_MODULES = {"sigmf": "sigmf_export", "parquet": "parquet_export", "npz": "numpy_export", "e3rt": "e3rt_export"}
EXAMPLES = """
twinlink export run.mcap --out run.sigmf-meta
twinlink export run.mcap run.0001.mcap --out run.parquet
twinlink export run.mcap --out prbs.parquet --table prbs
twinlink export run.mcap --out run.npz --flows 'samples*'
"""


def add_options(parser: Parser) -> None:
    """Declare the options."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="the files of a recording")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="what to write, such as run.parquet")
    parser.add_argument(
        "--format", choices=sorted(set(FORMATS.values())), help="what is written, where the suffix of --out says it not"
    )
    flow_finder.add_option(parser)
    parser.add_argument(
        "--table",
        choices=("messages", "prbs"),
        default="messages",
        help="of Parquet: a row a message, or a row a PRB and OFDM symbol",
    )
    outputs.add_option(parser)
    parser.add_argument("--json", action="store_true", help="the summary as JSON on stdout")


def run(given: argparse.Namespace) -> int:
    """Export; returns 1 if part of the recording could not be exported."""
    kind = given.format or FORMATS.get(given.out.suffix)
    if kind is None:
        raise ConfigurationError(
            f"--out {given.out}: its suffix is none of {', '.join(FORMATS)}: name the format with --format"
        )
    outputs.refuse_inputs("--out", [given.out], given.files)
    export = import_module(f"twinlink_export.{_MODULES[kind]}").export
    request = Request(given.files, given.out, given.flows, given.table, given.overwrite)
    with writing(given.out):
        outcome: Outcome = export(request)
    for text in (*outcome.problems, *outcome.notes):
        log(_NAME, text)
    output = Output(given.json)
    written = {str(path): count for path, count in outcome.written.items()}
    lines = [f"{path}: {count:,} {outcome.what}" for path, count in written.items()]
    output.emit({"format": kind, **outcome._asdict(), "written": written}, "\n".join(lines))
    return NOT_MET if outcome.problems else DONE
