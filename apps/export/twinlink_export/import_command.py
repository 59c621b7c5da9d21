"""Make a recording of a SigMF file or an E3RT trace.

SigMF may be of `twinlink export`, of the dApp framework (whole slots), or of the RAN emulator (one symbol a record).
The recording is one that `twinlink verify` accepts; its manifest names the file that it was made of, with its hash.
"""

import argparse
from importlib import import_module
from pathlib import Path

from twinlink.appkit import convert, outputs
from twinlink.appkit.console import DONE, Output, log, writing
from twinlink.appkit.options import Parser
from twinlink.errors import ConfigurationError

from .imported import Imported, Radio

_NAME = "twinlink import"
_MODULES = {".sigmf-meta": "sigmf_import", ".sigmf-data": "sigmf_import", ".e3rt": "e3rt_import"}
EXAMPLES = """
twinlink import run.sigmf-meta --out run.mcap
twinlink import trace.e3rt --out run.mcap --centre-hz 3.6e9
twinlink import iq_full.sigmf-meta --out run.mcap --overwrite
"""


def add_options(parser: Parser) -> None:
    """Declare the options."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a .sigmf-meta or .e3rt")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the recording, such as run.mcap")
    parser.add_argument(
        "--scs-khz", type=convert.above_0, default=30.0, metavar="KHZ", help="subcarrier spacing, of E3RT"
    )
    parser.add_argument(
        "--centre-hz", type=convert.seconds, default=0.0, metavar="HZ", help="carrier centre, of E3RT; 0: not known"
    )
    parser.add_argument(
        "--beta",
        type=convert.factor,
        default=Radio().beta,
        help="factor from the gNB's int16 to the values of E3RT and of float16, where the file does not say it",
    )
    outputs.add_option(parser)
    parser.add_argument("--json", action="store_true", help="the summary as JSON on stdout")


def run(given: argparse.Namespace) -> int:
    """Import."""
    name = _MODULES.get(given.file.suffix)
    if name is None:
        advice = ": unpack the archive (`tar -xf`), and give its .sigmf-meta" if given.file.suffix == ".sigmf" else ""
        raise ConfigurationError(f"{given.file}: its suffix is none of {', '.join(_MODULES)}{advice}")
    outputs.refuse_inputs("--out", [given.out], [given.file])
    outputs.refuse_existing("--out", [given.out], given.overwrite)
    overwrite = given.overwrite or given.out.exists()  # then it is empty
    radio = Radio(round(given.scs_khz * 1000), given.centre_hz, given.beta)
    import_file = import_module(f"twinlink_export.{name}").import_file
    with writing(given.out):
        imported: Imported = import_file(given.file, given.out, radio, overwrite)
    for note in imported.notes:
        log(_NAME, note)
    text = f"{given.out}: {imported.number:,} {imported.what}"
    Output(given.json).emit({"path": str(given.out), **imported._asdict()}, text)
    return DONE
