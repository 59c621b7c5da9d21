from pathlib import Path

import pytest

from twinlink.cpu_quota import is_limited


@pytest.mark.parametrize(
    ("own", "files", "limited"),
    [
        ("0::/\n", {}, False),
        ("0::/pod/me\n", {"pod/me/cpu.max": "max 100000\n", "pod/cpu.max": "max 100000\n"}, False),
        ("0::/pod/me\n", {"pod/me/cpu.max": "max 100000\n", "pod/cpu.max": "200000 100000\n"}, True),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, True),  # a container, which sees its own group as the root
        ("0::/../other\n", {"cpu.max": "50000 100000\n"}, True),
        ("4:memory:/m\n3:cpu,cpuacct:/pod\n0::/\n", {"cpu/pod/cpu.cfs_quota_us": "-1\n"}, False),
        ("4:memory:/m\n3:cpu,cpuacct:/pod\n0::/\n", {"cpu/pod/cpu.cfs_quota_us": "150000\n"}, True),
        ("3:cpu,cpuacct:/kubepods/pod7\n", {"cpu/cpu.cfs_quota_us": "150000\n"}, True),  # a name of the host's
        ("3:cpuset:/pod\n", {"cpu/pod/cpu.cfs_quota_us": "150000\n"}, False),
    ],
)
def test_a_quota_is_found(own: str, files: dict[str, str], limited: bool, tmp_path: Path) -> None:
    (tmp_path / "own").write_text(own)
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert is_limited(tmp_path, tmp_path / "own") is limited


def test_without_control_groups_there_is_none(tmp_path: Path) -> None:
    assert not is_limited(tmp_path, tmp_path / "own")
