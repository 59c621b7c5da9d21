from pathlib import Path

import pytest

from twinlink.process.cgroups import cpu_is_limited, memory_limit


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
    make_groups(own, files, tmp_path)
    assert cpu_is_limited(tmp_path, tmp_path / "own") is limited


@pytest.mark.parametrize(
    ("own", "files", "octets"),
    [
        ("0::/\n", {}, None),
        ("0::/pod/me\n", {"pod/me/memory.max": "max\n", "pod/memory.max": "268435456\n"}, 268435456),
        ("0::/pod/me\n", {"pod/me/memory.max": "1000\n", "pod/memory.max": "2000\n"}, 1000),
        ("4:memory:/m\n0::/\n", {"memory/m/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ("4:memory:/m\n0::/\n", {"memory/memory.limit_in_bytes": "4096\n"}, 4096),
    ],
)
def test_the_least_memory_counts(own: str, files: dict[str, str], octets: int | None, tmp_path: Path) -> None:
    make_groups(own, files, tmp_path)
    assert memory_limit(tmp_path, tmp_path / "own") == octets


def make_groups(own: str, files: dict[str, str], folder: Path) -> None:
    (folder / "own").write_text(own)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def test_without_control_groups_there_is_none(tmp_path: Path) -> None:
    assert not cpu_is_limited(tmp_path, tmp_path / "own")
    assert memory_limit(tmp_path, tmp_path / "own") is None
