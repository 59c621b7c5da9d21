"""Files of SigMF that hold several: archives and collections.  Neither is read; the message says what to do instead."""

import json
from pathlib import Path

from twinlink.process import files

from .schema import RecordingError

_ARCHIVES = (".sigmf", ".sigmf.gz", ".sigmf.xz", ".sigmf.zip")
_COLLECTION = ".sigmf-collection"
MOST_OCTETS = 16 * 1024 * 1024  # of a collection


def refuse_container(path: Path) -> None:
    """Raise RecordingError if this names an archive or a collection, or if nothing but one of them has this name."""
    name = path.name.lower()
    if name.endswith(_ARCHIVES):
        _refuse_archive(path)
    elif name.endswith(_COLLECTION):
        _refuse_collection(path)
    elif not name.endswith((".sigmf-meta", ".sigmf-data")) and not path.with_name(path.name + ".sigmf-meta").exists():
        for suffix in _ARCHIVES:
            if (archive := path.with_name(path.name + suffix)).exists():
                _refuse_archive(archive)
        if (collection := path.with_name(path.name + _COLLECTION)).exists():
            _refuse_collection(collection)


def _refuse_archive(path: Path) -> None:
    how = "unzip" if path.suffix == ".zip" else "tar -xf"
    raise RecordingError(f"{path} is a SigMF archive, which is not read: unpack it (`{how}`) and give its .sigmf-meta")


def _refuse_collection(path: Path) -> None:
    """The message names the recordings of the collection, as far as it can be read."""
    try:
        streams = json.loads(files.read(path, MOST_OCTETS))["collection"]["core:streams"]
        names = ", ".join(str(stream["name"]) for stream in streams)
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        names = ""
    which = f": {names}" if names else ""
    raise RecordingError(
        f"{path} is a SigMF collection of recordings, of which one at a time is played; give one of them{which}"
    )
