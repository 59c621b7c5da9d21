"""The E3 grammar of generation G0, read from the installed dApp library and compiled for aligned PER (ITU-T X.691).

The grammar files belong to the dApp library (PyPI ``dapps``) and are read from its installation, never copied: they are
found through the distribution's metadata, without importing that library.
"""

from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from .errors import GrammarMissing

DISTRIBUTION = "dapps"
VERSION = "0.0.6"  # every later release speaks another generation of E3AP under the same version string
E3AP_FILE = "e3interface/defs/e3.asn"
SPECTRUM_FILE = "spectrum/defs/e3sm_spectrum.asn"
_REMEDY = "install the extra: pip install 'twinlink[e3]'"


@cache
def e3ap() -> Any:
    """The compiled E3AP grammar (an ``asn1tools`` specification).  Raises GrammarMissing."""
    return _compile(E3AP_FILE)


@cache
def spectrum() -> Any:
    """The compiled spectrum service model (an ``asn1tools`` specification).  Raises GrammarMissing."""
    return _compile(SPECTRUM_FILE)


def grammar_path(name: str) -> Path:
    """Path of the grammar file ``name`` of the dApp library.  Raises GrammarMissing."""
    try:
        distribution = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        raise GrammarMissing(
            f"the E3 grammar comes from {DISTRIBUTION} {VERSION}, which is not installed; {_REMEDY}"
        ) from None
    if distribution.version != VERSION:
        raise GrammarMissing(
            f"the E3 grammar of generation G0 comes from {DISTRIBUTION} {VERSION}, "
            f"but {distribution.version} is installed and speaks another generation; {_REMEDY}"
        )
    path = Path(str(distribution.locate_file(name)))
    if not path.is_file():
        raise GrammarMissing(f"{DISTRIBUTION} {VERSION} is installed without its grammar file {path}; {_REMEDY}")
    return path


def _compile(name: str) -> Any:
    path = grammar_path(name)
    try:
        import asn1tools
    except ImportError:
        raise GrammarMissing(f"asn1tools, which compiles the E3 grammar, is not installed; {_REMEDY}") from None
    return asn1tools.compile_files(str(path), "per")
