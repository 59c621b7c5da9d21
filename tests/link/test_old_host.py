"""On a host that has been up for 200 days, as its clock says in a time namespace."""

import os
import subprocess
import sys

import pytest

from twinlink.testing import patience

UP_S = 200 * 24 * 3600
MEET = """
import sys, time, zmq, twinlink
from twinlink.protocol.frames import HEADER, HEADER_OCTETS, Hello
from twinlink.testing import patience
assert time.monotonic_ns() > 2**53
host, port = sys.argv[1].removeprefix("tcp/").rsplit(":", 1)
numbers, heard = {}, {}
context = zmq.Context()
with twinlink.open("zeromq", listen=sys.argv[1]) as listener, context.socket(zmq.SUB) as reader:
    reader.subscribe(b"traffic/_link")
    reader.connect(f"tcp://{host}:{port}")
    with twinlink.open("zeromq", connect=sys.argv[1]) as connector:
        connector.wait_ready(patience())
        listener.wait_ready(patience())
        while len(heard) < 5 and reader.poll(patience() * 1000):
            _, frame = reader.recv_multipart()
            *_, epoch, number, _ = HEADER.unpack_from(frame)
            numbers[number] = epoch
            for of, confirmed in Hello.decode(memoryview(frame)[HEADER_OCTETS:]).heard.items():
                heard[confirmed] = of
assert set(numbers.values()) == {listener.epoch}, numbers
assert set(heard.values()) == {connector.epoch}, heard
assert 0 < min(*numbers, *heard) and max(*numbers, *heard) < 2**53, (numbers, heard)
assert all(int(float(number)) == number for number in (*numbers, *heard))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a time namespace")
def test_the_numbers_of_hellos_are_exact_in_json_of_any_language(endpoint: str, pytestconfig: pytest.Config) -> None:
    """JavaScript has every number as a double."""
    done = subprocess.run(
        ["unshare", "--fork", "--time", f"--monotonic={UP_S}", sys.executable, "-c", MEET, endpoint],
        capture_output=True, text=True, check=False, timeout=patience(60), cwd=pytestconfig.rootpath,
    )  # fmt: skip
    if "unshare" in done.stderr:
        pytest.skip(f"no time namespaces here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
