"""Slots of a C sender over real sockets to a Python twin, with faults: each is delivered or named by the ledger."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from tests.c.building import ROOT, SOURCES, build, has_libzmq, needs_compiler, whole
from tests.c.running import Program, start_module, start_slots
from twinlink.testing import free_endpoint, patience

pytestmark = needs_compiler
needs_libzmq = pytest.mark.skipif(not has_libzmq(), reason="no zmq.h is found: install libzmq3-dev")
PACE = 250  # slots a second, of 71 KB
HELD_BY_A_KILL = 64  # slots at most that a killed twin had acknowledged and not written yet


@pytest.fixture
def started() -> Iterator[Callable[[Program], Program]]:
    """Ends what a test has started."""
    programs: list[Program] = []

    def start(program: Program) -> Program:
        programs.append(program)
        return program

    yield start
    for program in programs:
        if program.process.poll() is None:
            program.send_signal(signal.SIGCONT)
            program.end(signal.SIGKILL)


Start = Callable[[Program], Program]


def twin(start: Start, endpoint: str, transport: str = "websocket") -> Program:
    program = start(start_module("tests.c.twin", transport, endpoint))
    program.wait_for("listening")
    return program


def port_of(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


def sessions(twin: Program) -> list[list[int]]:
    """The slots that arrived, by session of the sender."""
    arrived: dict[str, list[int]] = {}
    for line in twin.lines:
        if line.startswith("message"):
            _, epoch, sequence = line.split()
            arrived.setdefault(epoch, []).append(int(sequence))
    return list(arrived.values())


def ledger(sender: Program) -> tuple[dict[str, int], set[int]]:
    """What the sender counted, and the slots that it names as lost."""
    assert sender.wait() == 0
    records = [json.loads(line) for line in sender.lines]
    named = {one for event in records if event.get("event") == "lost" for one in range(event["first"], event["end"])}
    stats: dict[str, int] = records[-1]
    assert stats["sent"] == stats["offered"]
    assert stats["acknowledged"] + stats["lost"] == stats["sent"]
    assert not stats["outstanding"]
    return stats, named


@whole
def test_slots_and_decisions_arrive(started: Start, slots_program: Path) -> None:
    endpoint = free_endpoint(1)
    receiver = twin(started, endpoint)
    sender = started(start_slots(slots_program, "127.0.0.1", port_of(endpoint), 2, 2 * PACE))
    stats, named = ledger(sender)
    receiver.end()
    assert sessions(receiver) == [list(range(stats["sent"]))]
    assert not named
    assert stats["sent"] > PACE
    assert stats["decisions"] >= stats["sent"] // 100  # the last may come too late


def over_zeromq(directory: Path) -> Path:
    sources = (ROOT / "tests/c/over_zeromq.c", SOURCES / "twinlink_zeromq.c", SOURCES / "twinlink.c")
    return build(directory / "over_zeromq", *sources, libraries=("-lzmq",))


@needs_libzmq
@pytest.mark.parametrize("parts", [[b"traffic/f"], [b"traffic/f", b"TL", b"more"]], ids=["one", "three"])
def test_what_is_no_message_over_zeromq_is_counted(started: Start, tmp_path: Path, parts: list[bytes]) -> None:
    endpoint = free_endpoint(2)
    with zmq.Context() as context, context.socket(zmq.PUB) as publisher:
        publisher.bind(endpoint.replace("tcp/", "tcp://"))
        sender = started(Program(over_zeromq(tmp_path), "127.0.0.1", port_of(endpoint), 1))
        until = time.monotonic() + patience()
        while not any('"malformed"' in line for line in sender.lines) and time.monotonic() < until:
            publisher.send_multipart(parts)
            time.sleep(0.01)
    assert any('"malformed"' in line for line in sender.lines)


@whole
@needs_libzmq
def test_messages_over_zeromq(started: Start, tmp_path: Path) -> None:
    """Twice, with a twin that is killed in between: the second session takes over."""
    program = over_zeromq(tmp_path)
    endpoint = free_endpoint(2)
    first = twin(started, endpoint, "zeromq")
    sender = started(Program(program, "127.0.0.1", port_of(endpoint), 3000))
    sender.wait_for("peer_up")
    time.sleep(0.7)
    first.end(signal.SIGKILL)
    second = twin(started, endpoint, "zeromq")
    stats, named = ledger(sender)
    second.end()
    (before,), (after,) = sessions(first), sessions(second)
    assert before == list(range(len(before)))
    assert after == sorted(set(after))
    unnamed = set(range(stats["sent"])) - {*before, *after} - named
    assert len(unnamed) <= HELD_BY_A_KILL
    assert stats["decisions"] > 0


def test_connections_that_are_cut(started: Start, slots_program: Path) -> None:
    """A proxy resets every connection three times, and what was on its way is lost."""
    port = port_of(free_endpoint(1))
    receiver = twin(started, f"tcp/127.0.0.2:{port}")
    proxy = started(start_module("tests.faults.proxy", "127.0.0.2", port, 1))
    proxy.wait_for("listening")
    sender = started(start_slots(slots_program, "127.0.0.1", port, 3, PACE))
    sender.wait_for("peer_up")
    for _ in range(3):
        time.sleep(0.6)
        proxy.tell("reset")
    stats, named = ledger(sender)
    receiver.end()
    (arrived,) = sessions(receiver)
    assert arrived == sorted(set(arrived))
    assert set(range(stats["sent"])) - set(arrived) == named
    assert not named  # the ring holds three seconds of slots
    assert stats["decisions"]


@whole
def test_a_path_that_stalls(started: Start, slots_program: Path) -> None:
    """Nothing gets through for longer than it takes to be declared down, then all that was written at once."""
    port = port_of(free_endpoint(1))
    receiver = twin(started, f"tcp/127.0.0.2:{port}")
    proxy = started(start_module("tests.faults.proxy", "127.0.0.2", port, 1))
    proxy.wait_for("listening")
    sender = started(start_slots(slots_program, "127.0.0.1", port, 6, PACE))
    sender.wait_for("peer_up")
    time.sleep(0.5)
    proxy.tell("stall")
    sender.wait_for("peer_down")
    time.sleep(0.5)
    proxy.tell("pass")
    stats, named = ledger(sender)
    receiver.end()
    (arrived,) = sessions(receiver)
    assert arrived == sorted(set(arrived))
    assert set(range(stats["sent"])) - set(arrived) <= named


@whole
def test_a_sender_that_is_stopped(started: Start, slots_program: Path) -> None:
    endpoint = free_endpoint(1)
    receiver = twin(started, endpoint)
    sender = started(start_slots(slots_program, "127.0.0.1", port_of(endpoint), 4, PACE))
    sender.wait_for("peer_up")
    time.sleep(0.5)
    sender.send_signal(signal.SIGSTOP)
    receiver.wait_for("PeerDown")
    sender.send_signal(signal.SIGCONT)
    stats, named = ledger(sender)
    receiver.end()
    assert sessions(receiver) == [list(range(stats["sent"]))]
    assert not named


@whole
def test_a_twin_that_is_stopped(started: Start, slots_program: Path) -> None:
    """It stands still for longer than it takes to be declared down, and longer than the ring has room for."""
    endpoint = free_endpoint(1)
    receiver = twin(started, endpoint)
    sender = started(start_slots(slots_program, "127.0.0.1", port_of(endpoint), 8, PACE))
    sender.wait_for("peer_up")
    time.sleep(0.5)
    receiver.send_signal(signal.SIGSTOP)
    sender.wait_for("peer_down")
    time.sleep(3.5)
    receiver.send_signal(signal.SIGCONT)
    stats, named = ledger(sender)
    receiver.end()
    (arrived,) = sessions(receiver)
    assert arrived == sorted(set(arrived))
    assert set(range(stats["sent"])) - set(arrived) <= named
    assert stats["sent"] - len(arrived) > 0


@whole
def test_a_twin_that_is_killed_and_starts_anew(started: Start, slots_program: Path) -> None:
    endpoint = free_endpoint(1)
    first = twin(started, endpoint)
    sender = started(start_slots(slots_program, "127.0.0.1", port_of(endpoint), 6, PACE))
    sender.wait_for("peer_up")
    time.sleep(1)
    first.end(signal.SIGKILL)
    second = twin(started, endpoint)
    sender.wait_for("restarted")
    stats, named = ledger(sender)
    second.end()
    (before,), (after,) = sessions(first), sessions(second)
    assert before == list(range(len(before)))
    assert after == sorted(set(after))
    assert after[-1] == stats["sent"] - 1
    unnamed = set(range(stats["sent"])) - {*before, *after} - named
    assert len(unnamed) <= HELD_BY_A_KILL
    assert all(before[-1] < one < after[0] for one in unnamed)


@whole
def test_a_sender_that_is_killed_and_starts_anew(started: Start, slots_program: Path) -> None:
    endpoint = free_endpoint(1)
    receiver = twin(started, endpoint)
    first = started(start_slots(slots_program, "127.0.0.1", port_of(endpoint), 60, PACE))
    receiver.wait_for("PeerUp")
    time.sleep(1)
    first.end(signal.SIGKILL)
    before = len(receiver.lines)
    sender = started(start_slots(slots_program, "127.0.0.1", port_of(endpoint), 2, PACE))
    receiver.wait_for("Restarted", after=before)
    stats, named = ledger(sender)
    receiver.end()
    of_first, of_second = sessions(receiver)
    assert of_first == list(range(len(of_first)))
    assert {*of_second, *named} == set(range(stats["sent"]))
    assert not named
