"""What a process has used."""

import subprocess
import sys

import pytest

_ECHOES = """
import socket, subprocess, threading
from twinlink_measure import usage

subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
with socket.create_server(("127.0.0.1", 0)) as listener:
    near = socket.create_connection(listener.getsockname())
    far, _ = listener.accept()
before = usage.transmitted()
for _ in range(100):
    for one, other in ((near, far), (far, near)):
        one.sendall(bytes(100))
        other.recv(100, socket.MSG_WAITALL)
print(*(now - then for now, then in zip(usage.transmitted(), before)))
"""


def test_what_stays_on_loopback_is_not_on_the_wire() -> None:
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces cannot be made here (root is needed): loopback's own traffic could not be counted")
    command = ["unshare", "--net", sys.executable, "-c", _ECHOES]
    octets, packets, segments = map(int, subprocess.run(command, capture_output=True, check=True).stdout.split())
    assert (octets, packets) == (0, 0)
    assert segments == 0
