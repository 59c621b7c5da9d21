"""Zenoh's shared memory where there is none, or too little: the link carries its messages all the same."""

from pathlib import Path

import pytest

from tests.link import named_host

_SENDS = """
import logging
logging.basicConfig(stream=sys.stdout, format="%(message)s")
subprocess.run(["mount", "-t", "tmpfs", "-o", arguments[0], "none", "/dev/shm"], check=True)
with twinlink.open("zenoh", listen="tcp/127.0.0.1:7447", node="twin", shared_memory=True) as twin:
    twin.receiver("flow", handler=lambda message: None)
    with twinlink.open("zenoh", connect="tcp/127.0.0.1:7447", node="gnb", shared_memory=True) as gnb:
        gnb.wait_ready(patience())
        sender = gnb.sender("flow")
        for _ in range(5):
            sender.send(bytes(1_000_000))
        sender.flush(patience())
"""


@pytest.mark.parametrize(
    ("mount", "why"),
    [
        ("size=17m", "17,825,792 octets are free, and a session takes up to 20,971,520"),
        ("ro", "Read-only file system"),
    ],
)
def test_a_link_without_shared_memory_uses_tcp_and_says_why(mount: str, why: str, tmp_path: Path) -> None:
    told = named_host.run(tmp_path, _SENDS, mount)
    expected = (
        f"zenoh tcp/127.0.0.1:7447: memory is not shared, and payloads go over TCP: /dev/shm: {why}; `df /dev/shm`"
    )
    assert told.count(expected) == 2, told


def test_a_link_with_shared_memory_says_nothing(tmp_path: Path) -> None:
    assert named_host.run(tmp_path, _SENDS, "size=64m") == ""
