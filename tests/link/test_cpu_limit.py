"""Busy polling: on request never, nor under a CPU limit, as a container has it: the kernel would stop the process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from twinlink.process.cgroups import cpu_is_limited
from twinlink.testing import free_endpoint, patience

_CLOSED_LOOP = """
import os, sys
if sys.argv[3:]:
    open(sys.argv[3] + "/cgroup.procs", "w").write("0")
import twinlink
from twinlink.transports.zeromq import ZeromqTransport

looks, zeromq_poll = 0, ZeromqTransport.poll
def counting_poll(self, until_mono_ns):
    global looks
    looks += 1
    return zeromq_poll(self, until_mono_ns)
ZeromqTransport.poll = counting_poll

poll = {"busy_poll": sys.argv[2] == "True"}
with (
    twinlink.open("zeromq", listen=sys.argv[1], **poll) as there,
    twinlink.open("zeromq", connect=sys.argv[1], **poll) as here,
):
    there.receiver("d", handler=lambda message: None)
    here.wait_ready(60)
    sender = here.sender("d")
    for _ in range(100):
        sender.send(b"x")
        sender.flush(60)
print(looks)
"""


@pytest.fixture
def limited() -> Iterator[Path]:
    """A control group with a quota of one processor."""
    second_version = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    group = Path("/sys/fs/cgroup", "" if second_version else "cpu", f"twinlink-test-{os.getpid()}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        if second_version:
            (group / "cpu.max").write_text("100000 100000")
        else:
            (group / "cpu.cfs_quota_us").write_text("100000")
    except OSError as error:
        group.rmdir()
        pytest.skip(f"no quota can be set here: {error}")
    yield group
    group.rmdir()


def looks(*group: str, busy_poll: bool = True) -> int:
    command = [sys.executable, "-c", _CLOSED_LOOP, free_endpoint(), str(busy_poll), *group]
    return int(subprocess.run(command, stdout=subprocess.PIPE, timeout=2 * patience(), check=True).stdout)


def test_no_thread_polls_under_a_quota(limited: Path) -> None:
    assert looks(str(limited)) == 0


def test_threads_poll_without_a_quota() -> None:
    if cpu_is_limited():
        pytest.skip("this test itself runs under a CPU limit")
    assert looks() > 0


def test_no_thread_polls_where_the_option_says_so() -> None:
    assert looks(busy_poll=False) == 0
