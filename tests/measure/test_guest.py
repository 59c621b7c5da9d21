"""The virtual machine, without booting it: what it boots from, and what is said where that is missing."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from twinlink_measure.guest import initramfs, packages


def test_modules_are_loaded_after_those_they_need_and_folders_are_seen_at_their_place(tmp_path: Path) -> None:
    needs = {"bridge": "stp,llc", "stp": "llc", "llc": "", "sch_etf": ""}
    for name, needed in needs.items():
        (tmp_path / f"{name}.ko").write_bytes(b"ELF\0depends=" + needed.encode() + b"\0name=" + name.encode() + b"\0")
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"a shell")
    kernel = packages.Kernel(tmp_path / "vmlinuz", tmp_path, busybox)
    shares = {"share0": Path("/tmp/a folder")}
    initramfs.write(kernel, ("bridge", "sch-etf", "built_in"), shares, tmp_path / "archive")
    archive = gzip.decompress((tmp_path / "archive").read_bytes())
    assert b"for module in llc.ko stp.ko bridge.ko sch_etf.ko; do" in archive
    assert b"mount -t 9p -o $share,ro,cache=loose share0 '/new/tmp/a folder'\n" in archive
    assert archive.count(b"a shell") == 1
    assert archive.endswith(b"TRAILER!!!\0\0\0\0")


@pytest.mark.parametrize(
    ("find", "named"),
    [
        (packages.qemu, "apt-get install qemu-system-x86"),
        (packages.kernel, "apt-get install linux-image-amd64 busybox-static"),
        (packages.cyclictest, "apt-get install rt-tests"),
    ],
)
def test_a_missing_package_is_named(
    find: Callable[[], object], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is installed, and apt-get is not there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(packages, "CACHE", tmp_path / "cache")
    if find is packages.kernel and Path("/bin/busybox").exists() and any(Path("/boot").glob("vmlinuz-*-amd64")):
        pytest.skip("SKIPPED: this machine has a kernel that the guest can use")
    if find is packages.cyclictest and Path("/usr/bin/cyclictest").exists():
        pytest.skip("SKIPPED: cyclictest is installed")
    with pytest.raises(packages.GuestError, match=named):
        find()
