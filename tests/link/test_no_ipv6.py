"""A kernel that was started without IPv6: ``::`` is every address of IPv4."""

import platform
import subprocess
import sys

import pytest

from twinlink.testing import patience

SOCKET = {"x86_64": 41, "aarch64": 198}  # numbers of the system call

# A filter (seccomp) has socket(AF_INET6, ...) fail as such a kernel does: no mock of Python's would stop the libraries.
WITHOUT_IPV6 = """
import ctypes, errno, socket, struct, sys
steps = [(0x20, 0, 0, 0), (0x15, 0, 3, {number}), (0x20, 0, 0, 16), (0x15, 0, 1, socket.AF_INET6),
         (0x06, 0, 0, 0x00050000 | errno.EAFNOSUPPORT), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
program = Program(len(steps), ctypes.addressof(code))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(program)) == 0
try:
    socket.socket(socket.AF_INET6)
except OSError as error:
    assert error.errno == errno.EAFNOSUPPORT
else:
    raise AssertionError("there is IPv6")
"""
MEET = """
import twinlink
from twinlink.testing import free_endpoint, patience
for transport in ("zeromq", "zenoh", "websocket", "tcp"):
    port = free_endpoint(2).rpartition(":")[2]
    with twinlink.open(transport, listen=f"tcp/[::]:{port}") as listener:
        with twinlink.open(transport, connect=f"tcp/127.0.0.1:{port}") as connector:
            connector.wait_ready(patience())
from urllib.request import urlopen
from twinlink.appkit.http import HttpAddress, Server
from twinlink.appkit.pulse import Pulse
with Server(HttpAddress("::", 0), Pulse(), list, []) as server:
    assert urlopen(f"http://127.0.0.1:{server.address.port}/healthz", timeout=patience()).status == 200
"""


NO_FILTER = platform.machine() not in SOCKET


def without_ipv6(code: str) -> str:
    """A program that runs this code as on a kernel without IPv6."""
    return WITHOUT_IPV6.replace("{number}", str(SOCKET[platform.machine()])) + code


@pytest.mark.skipif(NO_FILTER, reason="the filter has the numbers of two architectures")
def test_every_address_is_that_of_ipv4(pytestconfig: pytest.Config) -> None:
    done = subprocess.run(
        [sys.executable, "-c", without_ipv6(MEET)],
        capture_output=True, text=True, check=False, timeout=patience(30), cwd=pytestconfig.rootpath,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
