"""A name server that does not answer: a wait for a peer ends all the same when it should, and says why."""

import subprocess
import sys
from pathlib import Path

import pytest

from twinlink.testing import patience
from twinlink.testing.base import SCALE

_WAITS = """
import socket, subprocess, sys
from twinlink.testing.base import Stopwatch
import twinlink

subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["mount", "--bind", sys.argv[2], "/etc/resolv.conf"], check=True)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
    silent.bind(("127.0.0.1", 53))
    link = twinlink.open(sys.argv[1], connect="tcp/twin.example:7447")
    with Stopwatch() as watch:
        began = watch.now()
        try:
            link.wait_ready(0.5)
        except twinlink.PeerTimeout as error:
            print(error)
        print(watch.now() - began, flush=True)
    link.close()
"""


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
def test_a_wait_ends_when_it_should(transport: str, tmp_path: Path) -> None:
    unshare = ["unshare", "--net", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces cannot be made here (root is needed): a silent name server was not tried")
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    command = [*unshare, sys.executable, "-c", _WAITS, transport, str(tmp_path / "resolv.conf")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * patience(), check=True)
    told, seconds = done.stdout.splitlines()
    assert "DNS does not answer" in told
    assert float(seconds) < 3 * SCALE  # a resolver takes 10 s and more
