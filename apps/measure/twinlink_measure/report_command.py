"""Make everything that a sweep or a demo derives from its raw records again, compare two runs, or report a recording.

With one folder: results.json, table.md, table.csv, figures and report.html, of a demo summary.json too, from its raw
files alone. With two of the same setting: which differences between them are real (docs/results-format.md). With
recordings of a link, of one side or of both: a run made of them, with the same results; by default in FILE-report/.
"""

import argparse
import json
from importlib.metadata import entry_points
from pathlib import Path

from twinlink.appkit import outputs
from twinlink.appkit.console import DONE, Output, log, markdown, wrapped, writing
from twinlink.appkit.options import Parser
from twinlink.errors import ConfigurationError

EXAMPLES = """
twinlink report run1          # make its table, figures, page again
twinlink report run1 --out elsewhere
twinlink report before after  # which differences are real?
twinlink report run.mcap      # delays and losses of each flow, in run-report/
twinlink report gnb.mcap twin.mcap --out run1-report  # both sides of a link
"""

# Entry points: a field of run.json that only an application's runs have -> what makes their report again, and returns
# its summary and the text of it.
_REPORTS = "twinlink.reports"
COMPARISON_JSON, COMPARISON_MD = "comparison.json", "comparison.md"


def add_options(parser: Parser) -> None:
    """Declare the options."""
    parser.add_argument(
        "folders",
        type=Path,
        nargs="+",
        metavar="DIR",
        help="the folder of a sweep or a demo, or two: the second against the first; or recordings, FILE.mcap",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where the files go: the run's own folder if not given; of a comparison none are kept then; of "
        "recordings FILE-report",
    )
    outputs.add_option(parser)
    parser.add_argument(
        "--json", action="store_true", help="results.json, of a demo summary.json, or the comparison, on stdout"
    )


def run(given: argparse.Namespace) -> int:
    """Do it; 2 when a file of the run is damaged, 3 when a folder is no run or the two settings differ."""
    if any(path.is_file() for path in given.folders):
        given.out = given.out or given.folders[0].with_name(f"{given.folders[0].stem}-report")
        with writing(given.out):
            return _report_recordings(given)
    if len(given.folders) > 2:
        raise ConfigurationError(f"one folder, or two to be compared, are expected, not {len(given.folders)}")
    with writing(given.out or given.folders[0]):
        return _compare(given) if len(given.folders) == 2 else _rebuild(given)


def _rebuild(given: argparse.Namespace) -> int:
    from twinlink_results import results, summary

    (folder,) = given.folders
    if given.out and given.out.resolve() != folder.resolve():  # there, what is derived is made again
        outputs.refuse_existing("--out", [given.out / results.RESULTS, given.out / results.REPORT], given.overwrite)
    run = results.load(folder)
    other = next((point for point in entry_points(group=_REPORTS) if point.name in run), None)
    if other is not None:
        found, text = other.load()(folder, given.out)
    else:
        found = results.rebuild(folder, given.out)
        text = summary.text(found)
    Output(given.json).emit(found, wrapped(text))
    log("twinlink report", f"report: {(given.out or folder) / results.REPORT}")
    return DONE


def _report_recordings(given: argparse.Namespace) -> int:
    from twinlink_results import recorded_run, results, summary
    from twinlink_results.run import RUN

    made = [given.out / name for name in (RUN, results.RESULTS, results.REPORT)]
    outputs.refuse_existing("--out", made, given.overwrite)
    recorded_run.write(given.folders, given.out, given.overwrite)
    found = results.rebuild(given.out)
    Output(given.json).emit(found, wrapped(summary.text(found)))
    log("twinlink report", f"report: {given.out / results.REPORT}")
    return DONE


def _compare(given: argparse.Namespace) -> int:
    from twinlink_results import compare, results

    files = [given.out / name for name in (COMPARISON_JSON, COMPARISON_MD)] if given.out else []
    outputs.refuse_existing("--out", files, given.overwrite)
    found = compare.compare(*given.folders)
    text = compare.text(found)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        results.write(given.out / COMPARISON_JSON, json.dumps(found, indent=1, allow_nan=False) + "\n")
        results.write(given.out / COMPARISON_MD, text + "\n")
    Output(given.json).emit(found, markdown(text))
    return DONE
