"""Arrays in files, on a disk that is full."""

import gc
import sys
from pathlib import Path

import numpy as np
import pytest

from twinlink.appkit.arrays import write_arrays
from twinlink.appkit.console import explain


@pytest.mark.parametrize("compressed", [False, True])
def test_are_read_as_they_were_written(compressed: bool, tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.npz", {"one": np.arange(3), "two": np.eye(2, dtype=bool)}, compressed=compressed)
    with np.load(tmp_path / "a.npz") as found:
        assert {name: found[name].tolist() for name in found.files} == {"one": [0, 1, 2], "two": [[1, 0], [0, 1]]}


def test_a_full_disk_is_said_with_the_file_and_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "a.npz"
    place.symlink_to("/dev/full")
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    with pytest.raises(OSError, match="No space left") as full:
        write_arrays(place, {"some": np.zeros(100_000)}, compressed=False)
    assert explain(full.value).startswith(f"{place}: No space left on device")
    del full
    gc.collect()
    assert not said
