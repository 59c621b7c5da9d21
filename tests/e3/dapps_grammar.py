"""The grammar files of the dApp library: generation G0, not written by us."""

from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import asn1tools

E3AP_FILE = "e3interface/defs/e3.asn"
SPECTRUM_FILE = "spectrum/defs/e3sm_spectrum.asn"


@cache
def compiled(name: str) -> Any:
    """A grammar file of the dApp library, compiled for aligned PER."""
    return asn1tools.compile_files(str(Path(str(metadata.distribution("dapps").locate_file(name)))), "per")
