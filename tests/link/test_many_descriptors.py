"""A process that holds more than 1,024 files: select(2) takes no descriptor above 1023."""

import fcntl
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import twinlink
from twinlink.process.readiness import is_readable, is_writable
from twinlink.testing import free_endpoint, patience
from twinlink.transport_options import TransportName

HELD = 1100
COMMAND = str(Path(sys.executable).with_name("twinlink"))


@pytest.fixture
def held() -> Iterator[list[int]]:
    """So many files of this process that the next descriptors are above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * HELD:
        pytest.skip(f"this process may open {hard} files; {2 * HELD} are needed (`ulimit -Hn`)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * HELD), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(HELD)]
    yield files
    for one in files:
        os.close(one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_descriptor_above_1023_is_waited_for(held: list[int]) -> None:
    ends = socket.socketpair()
    near, far = (one.detach() for one in ends)
    try:
        assert near > 1023
        assert is_writable(near)
        assert not is_readable(near)
        began = time.monotonic()
        assert not is_readable(near, 0.02)
        assert time.monotonic() - began >= 0.02
        os.write(far, b"x")
        assert is_readable(near, None)
        os.close(far)
        os.read(near, 1)
        assert is_readable(near)  # its end
    finally:
        os.close(near)
    with pytest.raises(OSError, match="Bad file descriptor"):
        is_readable(near)


@pytest.mark.parametrize("transport", ["zeromq", "zenoh", "mqtt", "websocket", "tcp"])
def test_a_link_of_a_process_with_many_files(transport: TransportName, held: list[int]) -> None:
    endpoint = free_endpoint()
    with twinlink.open(transport, connect=endpoint, node="gnb") as gnb:
        time.sleep(0.1)  # it tries in vain, and has to go on
        with twinlink.open(transport, listen=endpoint, node="twin") as twin:
            gnb.wait_ready(patience())
            gnb.sender("f").send(b"ping")
            message = twin.receiver("f").receive(patience())
            assert message is not None
            assert gnb.stats()["internal_errors"] == twin.stats()["internal_errors"] == 0


def _start(*arguments: str, held: list[int]) -> "subprocess.Popen[str]":
    """A command that inherits the files, as from a supervisor or a notebook."""
    for one in held:
        fcntl.fcntl(one, fcntl.F_SETFD, 0)
    return subprocess.Popen(
        [COMMAND, *arguments],
        close_fds=False, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def test_commands_that_inherit_many_files(held: list[int]) -> None:
    endpoint, to = free_endpoint(), free_endpoint()
    listening = {"pong": free_endpoint(), "mgen": free_endpoint()}
    running = {
        "pong": _start("pong", "--listen", listening["pong"], held=held),
        "mgen": _start("mgen", "out", "--tcp", to.rpartition(":")[2], "--listen", listening["mgen"], held=held),
    }
    try:
        with twinlink.open("zeromq", listen=endpoint) as link:
            receiver = link.receiver("data")
            pub = running["pub"] = _start("pub", "--connect", endpoint, held=held)
            assert pub.stdin is not None
            pub.stdin.write("a line\n")
            pub.stdin.close()
            pub.stdin = None
            message = receiver.receive(patience())
            assert message is not None
            assert bytes(message.payload) == b"a line"
            assert pub.wait(patience()) == 0
        for name in ("pong", "mgen"):
            with twinlink.open("zeromq", connect=listening[name]) as peer:
                peer.wait_ready(patience())  # it is running
            running[name].terminate()
            said = running[name].communicate(timeout=patience())[0]
            assert running[name].returncode in {0, 1}, said
            assert "bug" not in said
    finally:
        for one in running.values():
            if one.poll() is None:
                one.kill()
            one.communicate()
