"""Arrays in files: on a disk that is full, and in files that are damaged."""

import gc
import io
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from twinlink.appkit.arrays import read_arrays, write_arrays
from twinlink.appkit.console import explain


@pytest.mark.parametrize("compressed", [False, True])
def test_are_read_as_they_were_written(compressed: bool, tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.npz", {"one": np.arange(3), "two": np.eye(2, dtype=bool)}, compressed=compressed)
    with np.load(tmp_path / "a.npz") as found:
        assert {name: found[name].tolist() for name in found.files} == {"one": [0, 1, 2], "two": [[1, 0], [0, 1]]}
    with pytest.raises(ValueError, match=r"do not fit together: one \(3,\), two \(2, 2\)"):
        read_arrays(tmp_path / "a.npz", numbers=["one"], flags=["two"])
    found = read_arrays(tmp_path / "a.npz", flags=["two"])
    assert {name: array.tolist() for name, array in found.items()} == {"two": [[1, 0], [0, 1]]}


def zipped(member: str, *parts: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method, compresslevel=1) as archive, archive.open(member, "w") as file:
        for part in parts:
            file.write(part)
    return content.getvalue()


def npy(shape: str, dtype: str = "|b1") -> bytes:
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "damaged"),
        (zipped("ue.npy", npy("(1, 1)"), b"\1")[:-30], "damaged"),
        (zipped("other.npy", npy("(1, 1)"), b"\1"), "no item named 'ue.npy'"),
        (zipped("ue.npy", npy("(1000000000, 1000000000)")), "1000000000000000000 octets of samples, not 0"),
        (zipped("ue.npy", *[bytes(2**26)] * 9), "more than 536,870,912 octets"),
        (zipped("ue.npy", npy("(1,)"), b"\1"), r"ue is bool \(1,\)"),
        (zipped("ue.npy", npy("(1, 1)", "|O"), b"\1"), "pickled"),
        (zipped("ue.npy", npy("(" * 2000)), "damaged"),
        (zipped("ue.npy", npy("(1, 1)"), b"\1", method=zipfile.ZIP_STORED).replace(b"\n\1", b"\n\0"), "Bad CRC"),
    ],
)
def test_what_is_damaged_or_too_large_is_named(content: bytes, said: str, tmp_path: Path) -> None:
    place = tmp_path / "a.npz"
    place.write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_arrays(place, flags=["ue"])


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
