"""What only the Zenoh transport has."""

import ctypes
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import twinlink
from twinlink.protocol.frames import Kind, frame
from twinlink.testing import free_endpoint, patience, wait_until
from twinlink.testing.base import in_thread
from twinlink.transports import Endpoint
from twinlink.transports.zenoh import ZenohTransport
from twinlink.transports.zenoh_config import ZenohOptions
from twinlink.transports.zenoh_connections import LINGER, ZENOHS_LINGER
from twinlink.transports.zenoh_inbox import TICK_S


def test_a_connector_that_renews_its_session_misses_nothing() -> None:
    endpoint = free_endpoint()
    with (
        twinlink.open("zenoh", listen=endpoint, node="listener") as listener,
        twinlink.open("zenoh", connect=endpoint, node="connector") as connector,
    ):
        for link in (listener, connector):
            link.wait_ready(patience())
        there, back = connector.sender("there"), listener.sender("back")
        for number in range(300):
            there.send(number.to_bytes(2))
            back.send(number.to_bytes(2))
            if number == 100:
                for _ in range(2):  # the first time, the connection may be about to serve
                    connector._leader_follower.run_exclusively(lambda: connector._transport.renew(1))
        for sender, link in ((there, listener), (back, connector)):
            sender.flush(patience())
            inbox = link.receiver(sender.flow)
            received = [inbox.receive(timeout=patience()) for _ in range(300)]
            assert [int.from_bytes(message.payload) for message in received if message] == list(range(300))


def test_a_session_that_is_closed_meanwhile_does_not_keep_the_next_one_from_being_woken() -> None:
    """The ticker may look at what the session before has left, just as that is closed."""
    closing, transport = (ZenohTransport(Endpoint.parse(free_endpoint()), True, 2**20, ZenohOptions()) for _ in "12")
    closing.open()
    closing.close()
    transport.open()
    try:
        inbox, connections = transport._inbox, transport._connections
        subscriber = inbox._subscriber
        inbox._subscriber, transport._connections = closing._inbox._subscriber, closing._connections
        time.sleep(5 * TICK_S)
        inbox._subscriber, transport._connections = subscriber, connections
        reading = in_thread(lambda: transport.receive(2 * TICK_S))
        time.sleep(4 * TICK_S)
        assert reading.result() is None
    finally:
        transport.close()


def test_a_frame_with_the_tail_of_another_is_dropped() -> None:
    """As Zenoh makes them when a connection ends in the middle of one: right header, right length."""
    endpoint = Endpoint.parse(free_endpoint())
    listener = ZenohTransport(endpoint, True, 2**20, ZenohOptions())
    listener.open()
    try:
        one, other = (frame(Kind.DATA, 7, number, 1000 + number, bytes(100)) for number in range(2))
        sealed = [listener.join(octets[:32], octets[32:]) for octets in (one, other)]
        glued = sealed[0][:90] + sealed[1][90:]
        publisher = listener._session.declare_publisher("traffic/flow")
        for octets in (sealed[0], glued, sealed[1]):
            publisher.put(octets)
        received: list[tuple[bytes, bytes]] = []
        while len(received) < 3:
            if (message := listener.receive(0.5)) is not None:
                received.append((message[0], bytes(message[1])))
        assert received == [(b"traffic/flow", one), (b"", b""), (b"traffic/flow", other)]
    finally:
        listener.close()


def lingering() -> list[bytes]:
    """How the sockets of this process linger that are connected over TCP."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            one = socket.socket(fileno=int(entry.name))
        except OSError:
            continue
        try:
            one.getpeername()
            if one.family == socket.AF_INET:
                found.append(one.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER.size))
        except OSError:
            pass
        finally:
            one.detach()
    return found


def test_no_socket_lingers_when_it_is_closed() -> None:
    """Zenoh's own choice, ten seconds, would hold its thread for so long when a peer has gone without a word."""
    endpoint = free_endpoint()
    with twinlink.open("zenoh", listen=endpoint) as one, twinlink.open("zenoh", connect=endpoint) as other:
        one.wait_ready()
        other.wait_ready()
        wait_until(lambda: len(lingering()) >= 2 and ZENOHS_LINGER not in lingering())


WITHOUT_DESCRIPTORS = """
import resource, sys, time, twinlink
link, peer = twinlink.open("zenoh", listen=sys.argv[1]), twinlink.open("zenoh", connect=sys.argv[1])
link.wait_ready(60)
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, most))
peer.close()
while link.peers():
    time.sleep(0.01)
time.sleep(0.5)  # until the connection has ended as well
assert link.receiver("flow").receive(0.2) is None
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
link.close()
"""


def test_a_process_without_descriptors_goes_on_when_a_connection_ends() -> None:
    """The test cannot look how the sockets linger then."""
    command = [sys.executable, "-c", WITHOUT_DESCRIPTORS, free_endpoint()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=patience(), check=False)
    assert ended.returncode == 0, ended.stderr
    assert not ended.stderr


SESSIONS = 40
OPENS_AND_CLOSES = f"""
import ctypes
from twinlink.transports import Endpoint
from twinlink.transports.zenoh import ZenohOptions, ZenohTransport
from twinlink.testing import free_endpoint

class Mallinfo2(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Mallinfo2
endpoint = Endpoint.parse(free_endpoint())
for number in range({SESSIONS} + 10):
    if number == 10:  # what Zenoh has once for the whole process is there from now on
        print(libc.mallinfo2().uordblks)
    transport = ZenohTransport(endpoint, True, 2**20, ZenohOptions())
    transport.open()
    transport.send(b"traffic/flow", bytes(100))
    transport.close()
print(libc.mallinfo2().uordblks)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="only glibc from 2.33 on says what is in use")
def test_a_closed_session_leaves_nothing_in_the_heap() -> None:
    command = [sys.executable, "-c", OPENS_AND_CLOSES]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=patience(), check=True).stdout
    before, after = map(int, printed.split())
    assert (after - before) / SESSIONS < 5_000


FORKS = """
import os, sys, twinlink
link = twinlink.open("zenoh", listen=sys.argv[1])
if os.fork() == 0:
    try:
        twinlink.open("zenoh", connect=sys.argv[1])
    except twinlink.TransportError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
link.close()
"""


def test_a_fork_of_a_process_that_used_zenoh_is_told_so() -> None:
    """It would wait for ever for a peer: threads do not go along with a fork, and Zenoh does not notice."""
    command = [sys.executable, "-c", FORKS, free_endpoint()]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=patience(60)).stdout
    assert "forked" in said
    assert "spawn" in said


_SLOW = """
import pathlib, sys, time, twinlink

def peak_kib():
    return int(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

with twinlink.open("zenoh", listen=sys.argv[1]) as link:
    numbers = []
    def take(message):
        numbers.append(message.sequence)
        if len(numbers) % 300 == 1:
            time.sleep(1)
    link.receiver("d", handler=take)
    link.wait_ready(60)
    before = peak_kib()
    print("ready", flush=True)
    while len(numbers) < 1500:
        time.sleep(0.01)
    print(peak_kib() - before, numbers == list(range(1500)), flush=True)
"""


def test_what_waits_for_a_handler_takes_little_memory() -> None:
    endpoint = free_endpoint()
    with (
        twinlink.open("zenoh", connect=endpoint) as link,
        subprocess.Popen([sys.executable, "-c", _SLOW, endpoint], stdout=subprocess.PIPE, text=True) as receiver,
    ):
        assert receiver.stdout
        receiver.stdout.readline()
        link.wait_ready(patience())
        sender = link.sender("d")
        for _ in range(1500):
            sender.send(bytes(100))
            time.sleep(0.003)  # each alone in a batch
        sender.flush(patience())
        grown_kib, in_order = receiver.stdout.readline().split()
        assert in_order == "True"
        assert int(grown_kib) < 6 * 1024
