"""The library's configuration, its calls at the limits, and what it leaves in a program."""

import ctypes as ct
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.c.building import SOURCES, build, needs_compiler
from tests.c.library import ABI, Config, FlowConfig, Node
from twinlink.protocol.frames import HELLO_TOPIC, Kind, frame

pytestmark = needs_compiler
FULL = "the flow was full, or the message longer than send_max_octets"
NOW_NS = 10**15
MS = 10**6


def config(**given: object) -> Config:
    members: dict[str, object] = {"abi": ABI, "octets": ct.sizeof(Config), "node": b"c", "epoch": 1, **given}
    return Config(**members)


def flow(**given: object) -> FlowConfig:
    return FlowConfig(**{"name": b"f", "ring_octets": 4096, "messages": 16, "reserve_octets": 0, **given})


@pytest.mark.parametrize(
    ("given", "of_flow", "says"),
    [
        ({"abi": ABI + 1}, {}, "another version"),
        ({"octets": 8}, {}, "another version"),
        ({"node": b""}, {}, "^node: "),
        ({"node": b'a"b'}, {}, "^node: "),
        ({"node": "\u00e9".encode()}, {}, "^node: "),
        ({"node": b"x" * 256}, {}, "^node: "),
        ({"epoch": 0}, {}, "^epoch: "),
        ({"receive_flow": b"_link", "receive_slots": 1}, {}, "^receive_flow: "),
        ({"receive_flow": b"control"}, {}, "^receive_slots: "),
        ({"receive_slots": 65}, {}, "^receive_slots: "),
        ({"send_max_octets": 2**24 + 1}, {}, "^send_max_octets: "),
        ({"receive_max_octets": 2**24 + 1}, {}, "^receive_max_octets: "),
        ({}, {"name": b"a/b"}, "^flows.name: "),
        ({}, {"name": b"x" * 64}, "^flows.name: "),
        ({}, {"messages": 24}, "^flows.messages: "),
        ({}, {"ring_octets": 255}, "^flows.ring_octets: "),
        ({}, {"reserve_octets": 4096}, "^flows.reserve_octets: "),
    ],
)
def test_a_wrong_configuration_is_refused(
    library: ct.CDLL, given: dict[str, object], of_flow: dict[str, object], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        Node(library, config(**given), [flow(**of_flow)], NOW_NS)


def test_two_flows_of_one_name_are_refused(library: ct.CDLL) -> None:
    with pytest.raises(ValueError, match=r"^flows\.name: "):
        Node(library, config(), [flow(), flow(name=b"g"), flow()], NOW_NS)


def test_memory_that_is_not_aligned_is_refused(library: ct.CDLL) -> None:
    with pytest.raises(ValueError, match="aligned"):
        Node(library, config(), [flow()], NOW_NS, misplaced=8)


def test_a_full_ring_does_not_wait_and_is_counted(library: ct.CDLL) -> None:
    node = Node(library, config(), [flow()], NOW_NS)
    taken = [node.send(0, bytes(1000), NOW_NS) for _ in range(5)]
    assert taken == [True, True, True, False, False]
    node.on_time(NOW_NS + 1, NOW_NS)
    stats = node.flow_stats(0)
    assert (stats.sent, stats.dropped, stats.lost) == (5, 2, 5)
    assert [(one["first"], one["end"], one["reason"]) for one in node.events[-1:]] == [(3, 5, FULL)]
    assert node.send(0, bytes(1000), NOW_NS)  # no peer was up, so none of it is kept


def test_what_is_longer_than_the_ring_never_fits(library: ct.CDLL) -> None:
    node = Node(library, config(), [flow()], NOW_NS)
    assert node.send(0, bytes(4096 - 32), NOW_NS)
    assert not node.send(0, bytes(4096 - 31), NOW_NS)


def test_an_empty_ring_takes_what_is_longer_than_half_of_it_wherever_it_is(library: ct.CDLL) -> None:
    node = Node(library, config(), [flow()], NOW_NS)
    for octets in (2000, 3000, 100, 3000, 4096 - 32):
        assert node.send(0, bytes(octets), NOW_NS)
        node.on_time(NOW_NS, NOW_NS)  # no peer is up, so none of it is kept


def test_a_clock_that_begins_at_zero_shows_a_silent_peer_in_time(library: ct.CDLL) -> None:
    node = Node(library, config(), [flow()], 0)
    node.on_time(60 * MS, 60 * MS)
    number = int.from_bytes(node.frames(60 * MS)[0][1][16:24])
    hello = b'{"node":"peer","heard":{"%016x":%d},"flows":{},"repairs":true,"detect":[]}' % (1, number)
    node.receive(HELLO_TOPIC, frame(Kind.HELLO, 2, 1, 0, hello), 61 * MS)
    assert [one["event"] for one in node.events] == ["peer_up"]
    for ms in range(61, 2000):
        node.on_time(ms * MS, ms * MS)
    assert [one["event"] for one in node.events] == ["peer_up", "peer_down"]


def test_a_shared_library_has_nothing_but_the_api(library: ct.CDLL, tmp_path: Path) -> None:
    if shutil.which("nm") is None:
        pytest.skip("nm is not found: install binutils")
    shared = build(tmp_path / "l.so", SOURCES / "twinlink.c", options=("-fPIC", "-shared", "-DTWINLINK_SHARED"))
    listed = subprocess.run(["nm", "-D", "--defined-only", shared], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1] for line in listed.splitlines()}
    assert names
    assert all(name.startswith("twinlink_") for name in names)
    hidden = build(tmp_path / "h.so", SOURCES / "twinlink.c", options=("-fPIC", "-shared"))
    listed = subprocess.run(["nm", "-D", "--defined-only", hidden], capture_output=True, text=True, check=True).stdout
    assert listed == ""


def test_the_core_calls_nothing_but_memory_and_strings(tmp_path: Path) -> None:
    """No system call, no allocation, no thread: all that it needs of a C library is here."""
    if shutil.which("nm") is None:
        pytest.skip("nm is not found: install binutils")
    built = build(tmp_path / "twinlink.o", SOURCES / "twinlink.c", options=("-O1", "-c"))
    listed = subprocess.run(["nm", "--undefined-only", built], capture_output=True, text=True, check=True).stdout
    needed = {line.split()[-1] for line in listed.splitlines()}
    allowed = {"memcpy", "memmove", "memset", "memcmp", "strlen", "strcmp", "strchr"}
    assert needed - allowed <= {"__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_"}


def test_a_program_in_cpp_can_include_it(tmp_path: Path) -> None:
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler is found: install g++")
    program = tmp_path / "program.cpp"
    program.write_text('#include "twinlink.h"\n#include "twinlink_websocket.h"\nint main() { return TWINLINK_OK; }\n')
    command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{SOURCES}", str(program)]
    subprocess.run([*command, "-o", str(tmp_path / "program")], check=True)
