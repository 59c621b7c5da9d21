"""Two processes, one of which is killed or stopped."""

import contextlib
import copy
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import twinlink
from twinlink.process.exit_hooks import EXIT_S
from twinlink.testing import free_endpoint, patience, wait_until
from twinlink.testing.base import Stopwatch
from twinlink.transport_options import TransportName

CHILD = """
import os, sys, twinlink
transport, role, endpoint = sys.argv[1:4]
options = {name: int(value) for name, value in (option.split("=") for option in sys.argv[4:])}
with twinlink.open(transport, **{role: endpoint}, node=f"child-{os.getpid()}", **options) as link:
    for flow in ("down", "down-2", "down-3", "down-4"):
        link.receiver(flow, handler=lambda message: None)
    link.wait_ready(60)
    up = link.sender("up")
    while True:
        up.send(b"payload")
        try:
            up.flush(0.1)
        except twinlink.AckTimeout:
            pass
"""
Start = Callable[..., subprocess.Popen[bytes]]
OTHER = {"listen": "connect", "connect": "listen"}
SEND_S = 0.8  # a send_timeout of 0.2 s, four times
both_ways = pytest.mark.parametrize("role", ["listen", "connect"])
real_transports = pytest.mark.parametrize("transport", ["zeromq", "zenoh", "mqtt"])


@pytest.fixture
def start() -> Iterator[Start]:
    """A peer in a process of its own that sends on flow up and takes flow down; killed at the end."""
    running: list[subprocess.Popen[bytes]] = []

    def run(transport: TransportName, role: str, endpoint: str, **options: int) -> subprocess.Popen[bytes]:
        given = [f"{name}={value}" for name, value in options.items()]
        command = [sys.executable, "-c", CHILD, transport, role, endpoint, *given]
        running.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        return running[-1]

    yield run
    for process in running:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


def open_link(transport: TransportName, role: str, endpoint: str, **options: float) -> twinlink.Link:
    arguments = {role: endpoint, **options}
    return twinlink.open(transport, node="parent", **arguments)  # type: ignore[arg-type]


def no_threads() -> bool:
    """Whether every thread of a link has ended."""
    return not [thread for thread in threading.enumerate() if thread.name.startswith("twinlink")]


@real_transports
@both_ways
def test_kill_and_restart(start: Start, transport: TransportName, role: str) -> None:
    endpoint = free_endpoint()
    with open_link(transport, role, endpoint) as link:
        child = start(transport, OTHER[role], endpoint)
        inbox, epochs = link.receiver("up"), []
        for _ in range(2):
            received = [inbox.receive(timeout=patience())]
            while received[0] and received[0].epoch in epochs:  # what was still under way
                received = [inbox.receive(timeout=patience())]
            epoch = received[0].epoch if received[0] else None
            while len(received) < 50:
                received.append(inbox.receive(timeout=patience()))
            assert [(m.epoch, m.sequence) for m in received if m] == [(epoch, number) for number in range(50)]
            epochs.append(epoch)
            child.kill()
            child.wait()
            child = start(transport, OTHER[role], endpoint)
        events: list[twinlink.Event] = []

        def gone() -> bool:
            events.extend(iter(lambda: link.events().receive(timeout=0), None))
            return set(epochs) <= {event.epoch for event in events if isinstance(event, twinlink.PeerDown)}

        wait_until(gone)
        downs = [event.reason for event in events if isinstance(event, twinlink.PeerDown)]
        assert set(downs) <= {"restarted", "silent"}
        assert not [e for e in events if isinstance(e, twinlink.Gap | twinlink.Duplicate | twinlink.Malformed)]


@pytest.mark.parametrize(
    ("transport", "role"), [("zeromq", "listen"), ("zeromq", "connect"), ("zenoh", "connect"), ("mqtt", "listen")]
)
def test_a_stopped_peer_holds_neither_send_nor_close(start: Start, transport: TransportName, role: str) -> None:
    endpoint = free_endpoint()
    link = open_link(transport, role, endpoint, send_timeout=0.2)
    child = start(transport, OTHER[role], endpoint)
    link.wait_ready(patience())
    outbox, payload = link.sender("down"), bytes(1_000_000)
    os.kill(child.pid, signal.SIGSTOP)
    with Stopwatch() as watch:
        longest_s, began = 0.0, time.monotonic()
        while time.monotonic() - began < 0.5:
            sending = watch.now()
            try:
                outbox.send(payload)
            except twinlink.SendTimeout:
                break
            finally:
                longest_s = max(longest_s, watch.now() - sending)
        closing = watch.now()
        link.close()
        close_s = watch.now() - closing
    if transport != "zenoh":  # there a hello may be held up for as long as the peer is stopped
        wait_until(no_threads)
    os.kill(child.pid, signal.SIGCONT)
    wait_until(no_threads)  # spare the others
    assert longest_s < patience(SEND_S)
    assert close_s < patience(4)


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
def test_one_of_several_that_is_stopped_does_not_hold_send(start: Start, transport: TransportName) -> None:
    endpoint, deadline_s = free_endpoint(), 0.6  # half of what a stopped peer holds Zenoh up
    with open_link(transport, "listen", endpoint, send_timeout=deadline_s) as link:
        first, _ = start(transport, "connect", endpoint), start(transport, "connect", endpoint)
        wait_until(lambda: len(link.peers()) == 2, patience())
        outboxes, payload = [link.sender(flow) for flow in ("down", "down-2", "down-3", "down-4")], bytes(10_000)
        took_s, down_at = [0.0], None
        os.kill(first.pid, signal.SIGSTOP)
        with Stopwatch() as watch:
            while down_at is None or len(took_s) < down_at + 2000:  # many more than a transport's queue holds
                for outbox in outboxes:
                    sending = watch.now()
                    outbox.send(payload)
                    took_s.append(watch.now() - sending)
                time.sleep(0.002)
                if down_at is None and len(link.peers()) == 1:
                    down_at = len(took_s)
        assert max(took_s) < patience(deadline_s)


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
def test_one_of_several_that_is_stopped_does_not_hold_other_flows(start: Start, transport: TransportName) -> None:
    """Though the transport is full of what a flow in bulk had waiting until that peer was down."""
    endpoint, deadline_s, little = free_endpoint(), 0.3, 8192
    with open_link(transport, "listen", endpoint, send_timeout=deadline_s, os_send_buffer=little) as link:
        first, _ = (start(transport, "connect", endpoint, os_receive_buffer=little) for _ in range(2))
        wait_until(lambda: len(link.peers()) == 2, patience())
        bulk, other = link.sender("down"), link.sender("down-2", reliability="detect")
        took_s, down_at = [0.0], None
        os.kill(first.pid, signal.SIGSTOP)
        with Stopwatch() as watch:
            while down_at is None or len(took_s) < down_at + 400:
                bulk.send(bytes(10_000))
                sending = watch.now()
                other.send(bytes(300))
                took_s.append(watch.now() - sending)
                time.sleep(0.005)
                if down_at is None and len(link.peers()) == 1:
                    down_at = len(took_s)
        assert max(took_s) < patience(deadline_s)


@real_transports
def test_a_stopped_peer_does_not_keep_an_interpreter_from_leaving(start: Start, transport: TransportName) -> None:
    endpoint = free_endpoint()
    start(transport, "connect", endpoint)
    script = """
import os, signal, subprocess, sys, twinlink
link = twinlink.open(sys.argv[1], listen=sys.argv[2], send_timeout=0.2)
link.wait_ready(60)
os.kill(int(sys.argv[3]), signal.SIGSTOP)
try:
    for _ in range(20):
        link.sender("down").send(bytes(1_000_000))
except twinlink.SendTimeout:
    pass
"""
    child = start(transport, "connect", endpoint)
    command = [sys.executable, "-c", script, transport, endpoint, str(child.pid)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(), check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@real_transports
def test_waits_end_on_time_however_often_a_signal_comes_while_the_peer_says_nothing(
    start: Start, transport: TransportName
) -> None:
    endpoint, over, limit_s = free_endpoint(), threading.Event(), patience(10)
    main = threading.main_thread().ident
    assert main is not None
    with open_link(transport, "listen", endpoint) as link:
        child = start(transport, "connect", endpoint)
        link.wait_ready(patience())
        os.kill(child.pid, signal.SIGSTOP)
        link.sender("down").send(b"")
        began = time.monotonic()

        def press() -> None:
            while not over.wait(0.01) and time.monotonic() < began + 2 * limit_s:  # or a wait without end would hang us
                signal.pthread_kill(main, signal.SIGUSR1)

        usual = signal.signal(signal.SIGUSR1, lambda *_: None)
        pressing = threading.Thread(target=press)
        pressing.start()
        try:
            with pytest.raises(twinlink.AckTimeout):
                link.sender("down").flush(0.5)
            assert link.receiver("quiet").receive(2) is None
            assert link.peers() == []
            assert time.monotonic() < began + limit_s
        finally:
            over.set()
            pressing.join()
            signal.signal(signal.SIGUSR1, usual)
            os.kill(child.pid, signal.SIGCONT)


ENDS_WITH_MESSAGES_OUTSTANDING = """
import contextlib, os, signal, sys, threading, time, twinlink
transport, endpoint, peer, closes, interrupts = *sys.argv[1:3], *map(int, sys.argv[3:])

def press():
    for _ in range(interrupts):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)

link = twinlink.open(transport, listen=endpoint)
with link if closes else contextlib.nullcontext():
    link.wait_ready(60)
    sender = link.sender("down")
    sender.send(b"")
    sender.flush(60)
    os.kill(peer, signal.SIGSTOP)
    time.sleep(0.05)
    sender.send(b"")
    if interrupts:
        threading.Thread(target=press, daemon=True).start()
        sender.flush(60)
"""


@real_transports
@pytest.mark.parametrize("closes", [True, False])
@pytest.mark.parametrize("interrupts", [0, 2])
def test_what_is_outstanding_at_the_end_of_a_program_is_named_however_often_ctrl_c_is_pressed(
    start: Start, transport: TransportName, closes: bool, interrupts: int
) -> None:
    endpoint = free_endpoint()
    child = start(transport, "connect", endpoint)
    arguments = [transport, endpoint, str(child.pid), str(int(closes)), str(interrupts)]
    command = [sys.executable, "-c", ENDS_WITH_MESSAGES_OUTSTANDING, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(), check=False)
    assert done.returncode == (-signal.SIGINT if interrupts else 0), done.stderr
    assert f"on flow down not acknowledged by child-{child.pid}: 1 (1 message)" in done.stderr


CLOSES_WHILE_IT_STANDS_STILL = """
import os, signal, sys, time, twinlink
link = twinlink.open("zeromq", listen=sys.argv[1])
receive = link._transport.receive

def stand_still(timeout_s):
    received = receive(timeout_s)
    if link.closed:
        time.sleep(0.05)  # until close waits for this thread
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(0.02)
    return received

link._transport.receive = stand_still
time.sleep(0.5)  # until it is used
link.close()
twinlink.open("zeromq", listen=sys.argv[1]).close()
"""


def test_a_machine_that_stands_still_does_not_keep_close_from_giving_back() -> None:
    with subprocess.Popen([sys.executable, "-c", CLOSES_WHILE_IT_STANDS_STILL, free_endpoint()]) as closes:
        stat = Path(f"/proc/{closes.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(") ")[2][0] == "T")
        time.sleep(0.5)  # longer than close waits
        closes.send_signal(signal.SIGCONT)
        assert closes.wait(patience()) == 0


ENDS_WHILE_IT_STANDS_STILL = """
import os, signal, sys, time, twinlink
link = twinlink.open("zenoh", connect=sys.argv[1])
driver = link._transport
leave = driver._leave

def stand_still():
    time.sleep(0.5)  # until nothing but the end of the process waits for this thread
    os.kill(os.getpid(), signal.SIGSTOP)
    leave()
    driver._open_session()  # a driver that takes a moment
    driver._session.close()

driver._leave = stand_still
"""
THE_LEADER_IS_LATE = """
receive = driver.receive

def late(timeout_s):
    time.sleep(0.6)  # close does not wait for so long: this thread gives back
    return receive(timeout_s)

driver.receive = late
time.sleep(0.2)  # until it is used
"""


@pytest.mark.parametrize("besides", ["", THE_LEADER_IS_LATE])
def test_a_machine_that_stands_still_at_the_end_of_a_process_does_not_abort_it(besides: str) -> None:
    script = [sys.executable, "-c", ENDS_WHILE_IT_STANDS_STILL + besides, free_endpoint()]
    with subprocess.Popen(script, stderr=subprocess.PIPE, text=True) as ends:
        stat = Path(f"/proc/{ends.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(") ")[2][0] == "T")
        time.sleep(EXIT_S)  # no more of the end's patience is left on the clock
        ends.send_signal(signal.SIGCONT)
        _, errors = ends.communicate(timeout=patience())
        assert ends.returncode == 0, errors


@pytest.mark.parametrize("transport", ["memory", "zeromq", "zenoh"])
def test_as_many_flows_as_the_limit_allows(transport: TransportName) -> None:
    endpoint = free_endpoint()
    with (
        twinlink.open(transport, listen=endpoint) as listener,
        twinlink.open(transport, connect=endpoint, node="connector") as connector,
    ):
        names = [f"{number:063d}" for number in range(1024)]
        for name in names:
            connector.sender(name)
        with pytest.raises(twinlink.ConfigurationError, match="1024 flows"):
            connector.sender("one-too-many")
        connector.wait_ready(patience())
        for name in names:
            connector.sender(name).send(b"")
        for name in names:
            assert listener.receiver(name).receive(timeout=patience()) is not None
        assert listener.stats()["malformed"] == {}


def test_a_forked_child_that_waits_leaves_its_parents_link_alone() -> None:
    """Its sockets and sessions are the parent's; the threads that would end them are not there."""
    endpoint = free_endpoint()
    with twinlink.open("memory", listen=endpoint) as link, twinlink.open("memory", connect=endpoint):
        link.wait_ready(patience())
        sender = link.sender("flow")
        given_back: list[str] = []
        closes, link._transport.close = link._transport.close, lambda: given_back.append("transport")  # type: ignore[method-assign]
        link._transport.send = lambda topic, frame: None  # type: ignore[method-assign]  # so that something is left
        sender.send(b"")
        child = os.fork()
        if child == 0:
            with contextlib.suppress(twinlink.TwinlinkError):
                sender.flush(patience())
            os._exit(len(given_back))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        link._transport.close = closes  # type: ignore[method-assign]


def test_a_child_forked_in_the_midst_of_a_send_is_told_so_and_sends_nothing() -> None:
    """What a thread of the parent held then, no thread will ever let go of in the child."""
    endpoint = free_endpoint()
    with twinlink.open("memory", listen=endpoint) as link, twinlink.open("memory", connect=endpoint) as other:
        link.wait_ready(patience())
        other.receiver("flow")
        sender = link.sender("flow")
        link._transport.send = lambda topic, frame: None  # type: ignore[method-assign]  # so that something is left
        sender.send(b"")
        sender._flow.queue.has_pending = True
        transmitter = sender._transmitter
        with transmitter.order_lock, link._driver.lock, transmitter.transmit_lock:
            child = os.fork()
            if child == 0:
                handed_over: list[bytes] = []
                link._transport.send = lambda topic, frame: handed_over.append(frame)  # type: ignore[method-assign]
                signal.alarm(10)
                refused = 0
                uses = (lambda: sender.send(b""), lambda: sender.flush(0.1), link.stats, lambda: link.sender("new"))
                for use in uses:
                    try:
                        use()
                    except twinlink.TwinlinkError as error:
                        refused += "forked" in str(error)
                link.events(handler=print)
                os._exit(refused if not handed_over else 99)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def length(message: twinlink.Message) -> int:
    return len(message.payload)


def flush_without_a_peer() -> None:
    with twinlink.open("memory", listen="tcp/nobody:1") as link:
        outbox = link.sender("flow")
        outbox.send(b"")
        outbox.flush(0)


@pytest.mark.parametrize("transport", ["memory", "zeromq", "zenoh"])
def test_messages_can_be_copied_and_handed_to_a_pool_of_processes(transport: TransportName) -> None:
    endpoint = free_endpoint()
    with open_link(transport, "listen", endpoint) as link, twinlink.open(transport, connect=endpoint) as other:
        other.wait_ready(patience())
        sizes = [0, 100, 100_000]
        for size in sizes:
            other.sender("flow").send(bytes(size))
        inbox = link.receiver("flow")
        messages = [message for _ in sizes if (message := inbox.receive(patience()))]
        assert [type(message.payload) for message in messages].count(memoryview)
        for message in messages:
            for copied in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
                assert copied == message
                assert type(copied) is twinlink.Message
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            assert list(pool.map(length, messages)) == sizes


def test_an_ack_timeout_comes_back_from_a_pool_of_processes() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        with pytest.raises(twinlink.AckTimeout, match="sequence 0") as caught:
            pool.submit(flush_without_a_peer).result(patience())
        for error in (caught.value, copy.copy(caught.value), copy.deepcopy(caught.value)):
            assert error.missing == ((0, 1),)
            assert str(error) == str(caught.value)
        assert pool.submit(int, 3).result(patience()) == 3
