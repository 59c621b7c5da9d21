"""Prove that recordings are complete (exit code 0), or name what is missing from them (exit code 1).

It holds every octet to the manifest, and the messages to what their senders numbered.  With --repair a file that was
cut, as by kill -9 or a full disk, or that is damaged, is made whole as FILE.repaired.mcap beside it: with all that is
sound, and a manifest that names the rest.  The file itself stays as it is.
"""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..appkit import outputs
from ..appkit.console import DONE, NOT_MET, Output
from ..appkit.options import Parser
from ..errors import ConfigurationError
from ..process.text import on_one_line

if TYPE_CHECKING:
    from twinlink.recording import Report

EXAMPLES = """
twinlink verify run.mcap
twinlink verify run.mcap run.0001.mcap --json
twinlink verify run.mcap --repair   # makes run.repaired.mcap if need be
"""
_WHY = {
    "recorder": "the recorder has not seen them",
    "sender": "their sender has given them up",
    "path": "they were lost on the path",
    "open": "they had not arrived when the file ended",
    "damaged": "they are in a chunk that is damaged",
    "queue": "left out: the recorder could not keep up",
    "mirror": "left out: the mirror at which it was recorded did not show them",
    "disk": "left out: the disk was full",
    "source": "left out: what was imported lacks them",
}


def add_options(parser: Parser) -> None:
    """Declare the options."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="recordings of `twinlink record`")
    parser.add_argument(
        "--repair", action="store_true", help="make FILE.repaired.mcap of what is sound, where FILE is cut or damaged"
    )
    outputs.add_option(parser)
    parser.add_argument("--json", action="store_true", help="a JSON object a file on stdout")


def run(given: argparse.Namespace) -> int:
    """Verify each file; returns 1 if something is missing from one."""
    from twinlink.recording import repair, verify

    output, complete = Output(given.json), True
    for path in given.files:
        report, made = verify(path), None
        if given.repair and not report.sound:
            made = path.with_name(f"{path.stem}.repaired{path.suffix}")
            if made.exists() and not given.overwrite:
                raise ConfigurationError(f"{made} exists: move it away, or replace it with --overwrite")
            repair(path, made, overwrite=True)
        complete &= report.complete
        record = {"type": "file", **report.as_json(), "repaired_file": str(made) if made else None}
        output.emit(record, "\n".join(lines(report, made)))
    return DONE if complete else NOT_MET


def lines(report: "Report", made: Path | None) -> list[str]:
    """What was found, for a person."""
    found = f"{report.messages:,} records in {report.chunks:,} chunks, flows: {len(report.streams)}"
    state = "complete" if report.complete else "sound, but not complete" if report.sound else "damaged or cut"
    told = [f"{report.path}: {state}; {found}"]
    told += [f"  {problem}" for problem in report.problems]
    for stream, side, ranges in report.missing():
        of = f"flow {stream['flow']} {_by(stream)}"
        if side == "cut":
            told.append(f"  {of}: what followed{_after(report, stream)} is not known, as the file was cut")
        else:
            told.append(f"  {of}: missing {ranges}: {_WHY.get(side, on_one_line(side))}")
    if report.lacks_end and not report.streams:
        told.append("  which messages there were is not known: the file was cut before the first")
    if report.others_left_out:
        told.append(f"  {report.others_left_out} acks, events and other frames without messages were left out")
    for stream in report.streams:
        for loss in stream.get("lost", ()):
            told.append(
                f"  flow {stream['flow']}: {loss['first']} to {loss['end'] - 1} are here, and were lost to "
                f"{on_one_line(', '.join(loss['peers']) or 'the peers')}: {on_one_line(loss['reason'])}"
            )
    if report.next_file:
        carried = sum(end - first for stream in report.streams for first, end in stream.get("to_next_file", ()))
        late = f", with {carried} messages that came late, if they did" if carried else ""
        told.append(f"  goes on in {on_one_line(report.next_file)}{late}")
    if made is not None:
        told.append(f"  what is sound of it is in {made}, whose manifest names the rest")
    return told


def _by(stream: dict[str, object]) -> str:
    node = on_one_line(str(stream["node"] or stream["epoch"]))
    return f"{'sent by' if stream['direction'] == 'sent' else 'received from'} {node}"


def _after(report: "Report", stream: dict[str, object]) -> str:
    recorded = stream["recorded"]
    number = f" message {recorded[-1][1] - 1}" if isinstance(recorded, list) and recorded else ""
    if report.last_ns is None:
        return number
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(report.last_ns / 1e9))
    return f"{number} (last record: {when} UTC)"
