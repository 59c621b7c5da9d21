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

    The content is built in memory: after a full disk the interpreter closes a zip file again, which prints a traceback.
    """
    content = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(content, **arrays)
    with writing(place):
        place.write_bytes(content.getbuffer())
