"""The example of docs/javascript.md, in node, beside a link of Python's."""

import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import twinlink
from tests.c.running import Program
from tests.javascript.running import MODULE, NODE, needs_node
from twinlink.testing import patience, wait_until

pytestmark = needs_node
PAGE = (Path(__file__).parents[2] / "docs" / "javascript.md").read_text()
EXAMPLE = next(block for block in re.findall(r"```js\n(.*?)```", PAGE, re.DOTALL) if block.startswith("import"))


@pytest.fixture
def viewer(endpoint: str, tmp_path: Path) -> Iterator[Program]:
    shutil.copytree(MODULE, tmp_path / "twinlink")
    script = tmp_path / "viewer.mjs"
    script.write_text(EXAMPLE.replace("127.0.0.1:7447", endpoint.removeprefix("tcp/")))
    one = Program(NODE, "--experimental-websocket", "--no-warnings", script)  # before Node 22 it is an experiment
    yield one
    one.end(signal.SIGKILL)


def send(link: twinlink.Link, count: int) -> None:
    sender = link.sender("spectrum")
    for number in range(count):
        sender.send(bytes(100 * number))
    sender.send_many([b"run"] * 50)
    sender.send(bytes(2_000_000))  # in fragments
    sender.flush(patience())
    assert sender.stats()["lost"] == 0


def test_the_example_takes_and_acknowledges(endpoint: str, viewer: Program) -> None:
    viewer.wait_for("not connected")  # its first attempt finds no listener
    with twinlink.open("websocket", listen=endpoint, node="gnb") as link:
        link.wait_ready(patience())
        send(link, 100)
        viewer.wait_for("gnb spectrum 150: 2000000 octets")
    viewer.wait_for("not connected")
    with twinlink.open("websocket", listen=endpoint, node="gnb") as link:  # another session, from 0
        link.wait_ready(patience())
        before = len(viewer.lines)
        send(link, 10)
        viewer.wait_for("gnb spectrum 60: 2000000 octets", before)
        assert link.stats()["malformed"] == {}
        link.sender("other").send(b"")
        wait_until(lambda: link.stats()["sent"]["other"]["lost"] == 1)  # rejected: it takes flow spectrum alone
    numbers = [int(line.split()[2][:-1]) for line in viewer.lines if line.startswith("gnb spectrum")]
    assert numbers == [*range(151), *range(61)]
    assert not [line for line in viewer.lines if line.startswith("missing")]


def test_a_peer_that_is_killed_is_missed_and_found_again(endpoint: str, viewer: Program) -> None:
    with twinlink.open("websocket", listen=endpoint, node="gnb") as link:
        link.wait_ready(patience())
        viewer.send_signal(signal.SIGSTOP)
        wait_until(lambda: link.peers() == [])
        sender = link.sender("spectrum")
        for _ in range(10):
            sender.send(b"meanwhile")
        viewer.send_signal(signal.SIGCONT)
        viewer.wait_for("gnb spectrum 9: 9 octets")
        viewer.end(signal.SIGKILL)
        wait_until(lambda: link.peers() == [])
