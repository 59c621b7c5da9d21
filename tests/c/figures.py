"""Figures of the C node: ``python -m tests.c.figures``, on an idle machine, prints them as JSON.

- ``text_octets``: of the core, and of the driver for WebSocket, with -O2.
- ``core_ns``: what two C nodes in one thread take for a message of 1000 octets and its ack (``threads.c``).
- ``slot_call``: what a slot thread takes for 71 KB, 2000 times a second, with twinlink and without (``slot_call.c``),
  with a Python twin that acknowledges; the median of the rounds, and their range.
- ``round_trip``: p50 of a message from C to a handler in Python with its ack, through twinlink and over the bare socket
  with the same framing (``round_trip.c``), in turns, from when the message has been written; and the ratio.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from websockets.speedups import apply_mask

import twinlink
from tests.c.building import ROOT, SOURCES, build
from twinlink.testing import free_endpoint

ROUNDS = 5
SLOT_SECONDS = 4
MESSAGES = {1_000: 3_000, 71_320: 1_500}  # by octets
ACK_OCTETS = 72 + len("ack/spectrum") + 1
LAST_CPU = max(os.sched_getaffinity(0))


def text_octets(directory: Path) -> dict[str, int]:
    found = {}
    for name in ("twinlink", "twinlink_websocket"):
        target = build(directory / f"{name}.o", SOURCES / f"{name}.c", options=("-O2", "-c"))
        listed = subprocess.run(["size", target], capture_output=True, text=True, check=True).stdout
        found[name] = int(listed.splitlines()[1].split()[0])
    return found


def beside_a_twin(*command: object) -> dict[str, Any]:
    """What a program says that sends to a twin at the port that replaces ``PORT``."""
    endpoint = free_endpoint(1)
    port = endpoint.rpartition(":")[2]
    with twinlink.open("websocket", listen=endpoint, node="twin") as link:
        link.receiver("spectrum", handler=lambda message: None)
        words = [port if one == "PORT" else str(one) for one in command]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            answer: dict[str, Any] = json.loads(program.stdout.read())
    return answer


def serve_bare(listener: socket.socket) -> None:
    """Answers each frame of one connection with as many octets as an ack has."""
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, connection.makefile("rb") as stream:
        while head := stream.read(2):
            octets = head[1] & 0x7F
            if octets > 125:
                octets = int.from_bytes(stream.read(2 if octets == 126 else 8))
            mask = stream.read(4)
            apply_mask(stream.read(octets), mask)
            connection.sendall(bytes((0x82, ACK_OCTETS)) + bytes(ACK_OCTETS))


def over_a_bare_socket(program: Path, count: int, octets: int) -> dict[str, Any]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve_bare, args=(listener,))
        server.start()
        command = [program, "bare", "127.0.0.1", listener.getsockname()[1], count, octets]
        done = subprocess.run([str(one) for one in command], capture_output=True, text=True, check=True)
        server.join()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def spread(values: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 3),
        "least": round(min(values), 3),
        "most": round(max(values), 3),
    }


def core_ns(directory: Path) -> dict[str, float]:
    program = build(
        directory / "threads", ROOT / "tests/c/threads.c", options=("-O2", "-pthread", "-Wno-unused-function")
    )
    rounds = [subprocess.run([program, "300000", "alone"], capture_output=True, check=True) for _ in range(ROUNDS)]
    return spread([json.loads(one.stdout)["ns"] for one in rounds])


def slot_call(directory: Path) -> dict[str, Any]:
    sources = (ROOT / "tests/c/slot_call.c", SOURCES / "twinlink.c", SOURCES / "twinlink_websocket.c")
    program = build(directory / "slot_call", *sources, options=("-O2", "-pthread"))
    rounds = [beside_a_twin(program, "127.0.0.1", "PORT", SLOT_SECONDS, LAST_CPU) for _ in range(ROUNDS)]
    return {
        f"{kind}_{point}": spread([one[kind][point] for one in rounds])
        for kind in ("copy_alone", "twinlink_send", "reserve_and_commit")
        for point in ("p50_ns", "p99_ns")
    }


def round_trip(directory: Path) -> dict[str, Any]:
    sources = (ROOT / "tests/c/round_trip.c", SOURCES / "twinlink.c")
    program = build(directory / "round_trip", *sources, options=("-O2", "-Wno-unused-function"))
    found = {}
    for octets, count in MESSAGES.items():
        pairs = [
            (
                beside_a_twin(program, "twinlink", "127.0.0.1", "PORT", count, octets)["p50_ns"],
                over_a_bare_socket(program, count, octets)["p50_ns"],
            )
            for _ in range(ROUNDS)
        ]
        found[str(octets)] = {
            "twinlink_us": spread([ours / 1000 for ours, _ in pairs]),
            "bare_us": spread([bare / 1000 for _, bare in pairs]),
            "ratio": spread([ours / bare for ours, bare in pairs]),
        }
    return found


def main() -> None:
    parts = {"text_octets": text_octets, "core_ns": core_ns, "slot_call": slot_call, "round_trip": round_trip}
    with tempfile.TemporaryDirectory() as directory:
        for name in sys.argv[1:] or parts:
            print(json.dumps({name: parts[name](Path(directory))}, indent=1), flush=True)


if __name__ == "__main__":
    main()
