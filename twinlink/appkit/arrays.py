"""Files of numpy arrays (``.npz``)."""

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import npy
from ..errors import MalformedPayload
from .console import writing

MOST_OCTETS = 512 * 1024 * 1024  # of the arrays that are read, unpacked: a small file must not take all memory
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, MalformedPayload, NotImplementedError, RuntimeError)


def write_arrays(place: Path, arrays: Mapping[str, NDArray[Any]], *, compressed: bool = True) -> None:
    """Write an ``.npz``; an OSError names ``place``.

    The content is built in memory: after a full disk the interpreter closes a zip file again, which prints a traceback.
    """
    content = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(content, **arrays)
    with writing(place):
        place.write_bytes(content.getbuffer())


def read_arrays(place: Path, *, numbers: Sequence[str] = (), flags: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Arrays of an ``.npz`` by their names; all have the same number of rows.

    Args:
        place: the file.
        numbers: names of arrays of integers, ``(rows,)``.
        flags: names of arrays of bool, ``(rows, columns)``, all with the same columns.

    Raises OSError; ValueError, which says what is wrong: the file is damaged, too large, or has other arrays.
    """
    names = (*numbers, *flags)
    try:
        with zipfile.ZipFile(place) as archive:
            members = [archive.getinfo(f"{name}.npy") for name in names]
            if sum(member.file_size for member in members) > MOST_OCTETS:
                raise ValueError(f"its arrays have more than {MOST_OCTETS:,} octets, the most that is read")
            found = {name: npy.decode(archive.read(member)) for name, member in zip(names, members, strict=True)}
    except _DAMAGED as error:
        raise ValueError(f"it is damaged: {error}") from error
    for name, array in found.items():
        if array.dtype.kind not in ("iu" if name in numbers else "b") or array.ndim != (1 if name in numbers else 2):
            raise ValueError(f"its array {name} is {array.dtype} {array.shape}, of another form than expected")
    if len({len(array) for array in found.values()}) > 1 or len({found[name].shape[1] for name in flags}) > 1:
        raise ValueError("its arrays do not fit together: " + ", ".join(f"{k} {v.shape}" for k, v in found.items()))
    return found
