"""Files of numpy arrays."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .console import writing


def write_arrays(place: Path, arrays: Mapping[str, NDArray[Any]], *, compressed: bool = True) -> None:
    """Write an ``.npz``; an OSError names ``place``.

    It is made in memory: a zip file that finds the disk full is closed once more by the interpreter, which then shows
    a traceback.
    """
    made = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(made, **arrays)
    with writing(place):
        place.write_bytes(made.getbuffer())
