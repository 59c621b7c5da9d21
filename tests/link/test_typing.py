"""What type checkers tell the author of a program: mypy --strict finds the usual mistakes, and none in a right program.

The declared names, options and counters are those that the library has.
"""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

import twinlink
from twinlink import stats
from twinlink.testing import free_endpoint, patience
from twinlink.transport_options import TransportName, TransportOptions
from twinlink.transports import TRANSPORTS, transport_class, transport_name

RIGHT = """
import array
import asyncio
import sys
from twinlink.transports import transport_name
import numpy as np
import twinlink

with twinlink.open("zeromq", connect="tcp/127.0.0.1:7447", node="gnb-1", heartbeat_ms=100) as link:
    sender = link.sender("spectrum", overflow="drop-oldest", priority="high", on_ack=lambda ack: print(ack.rtt_ns))
    for payload in (b"", bytearray(1), memoryview(b"1"), array.array("h", [1]), np.zeros(3, np.int16)):
        sender.send(payload)
    for said in ("text", {"prbs": [50, 51], "gain_db": 3.5}, [1, "two"]):
        sender.send(said)
    sender.send_array(np.zeros((2, 3), np.complex64))
    peers = sender.stats()["peers"].values()
    print([delays["rtt_ns"]["p95"] / 1e6 for delays in peers if delays["rtt_ns"] is not None])
    print(link.stats()["received"]["control"]["missing"] + 1)
    for message in link.receiver("control"):
        print(bytes(message.payload), message.array().shape, message.text().upper(), message.json()["prbs"])
other = twinlink.open(transport_name(sys.argv[1]), listen="tcp/0.0.0.0:7447")

async def main() -> None:
    async with twinlink.open_async("zenoh", listen="tcp/127.0.0.1:7447", shared_memory=True) as link:
        link.receiver("state", handler=lambda message: print(message.text()))
        link.events(handler=print)
        print(link.sender("control", on_ack=lambda ack: asyncio.sleep(ack.rtt_ns / 1e9)).stats()["sent"] + 1)
        async for message in link.receiver("spectrum"):
            await link.sender("control").send(message.payload)
            await link.sender("state").send({"flow": message.flow})
        async for event in link.events():
            print(event.time_ns)
    other = await twinlink.open_async("zenoh", listen="tcp/127.0.0.1:7447")
    print(other.stats()["node"], other.peers())
    await other.close()

asyncio.run(main())
"""
WRONG = """
import twinlink

twinlink.open("zeromqq", listen="tcp/0.0.0.0:7447")  # error: arg-type
twinlink.open("zeromq", listen=7447)  # error: arg-type
twinlink.open("zeromq", listens="tcp/0.0.0.0:7447")  # error: call-arg
twinlink.open("zeromq", listen="tcp/0.0.0.0:7447", hartbeat_ms=100)  # error: call-arg
twinlink.open("zeromq", listen="tcp/0.0.0.0:7447", heartbeat_ms="100")  # error: arg-type
link = twinlink.open("zeromq", listen="tcp/0.0.0.0:7447")
sender = link.sender("spectrum")
sender.send(3.5)  # error: arg-type
sender.send({1, 2, 3})  # error: arg-type
sender.send_array([1, 2, 3])  # error: arg-type
sender.flush("1")  # error: arg-type
link.sender("spectrum", reliability="repairs")  # error: arg-type
link.sender("spectrum", overflow="drop")  # error: arg-type
link.sender("spectrum", priority="urgent")  # error: arg-type
link.sender("spectrum", pace="slow")  # error: arg-type
link.sender("spectrum", on_ack=link.close)  # error: arg-type
link.receiver("spectrum", handler=print, max_age="1")  # error: arg-type
link.receiver("spectrum").receive().payload  # error: union-attr
sender.stats()["acked"]  # error: typeddict-item
link.stats()["received"]["spectrum"]["lost"]  # error: typeddict-item
sender.stats()["peers"]["0"]["rtt_ns"]["p50"]  # error: index
link.send(b"")  # error: attr-defined
twinlink.open_async("zenoh", listen="tcp/0.0.0.0:7447", lease_s=2)  # error: call-arg
twinlink.open_async("zenoh", listen="tcp/0.0.0.0:7447").sender("spectrum")  # error: attr-defined
"""


def mypy(program: Path) -> list[tuple[int, str]]:
    """Line and code of each error that mypy --strict finds, as a user runs it: without this repository's options."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", program.name]
    done = subprocess.run(
        command, cwd=program.parent, capture_output=True, text=True, timeout=patience(240), check=False
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    return [(int(line), code) for line, code in re.findall(r"^\S+:(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.M)]


def test_mypy_finds_every_mistake_and_no_other(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(RIGHT)
    assert mypy(program) == []
    program.write_text(WRONG)
    marked = [(line, text.split("# error: ")[1]) for line, text in enumerate(WRONG.split("\n"), 1) if "# error" in text]
    assert len(marked) >= 20
    assert mypy(program) == marked


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(twinlink.__file__).parent / "py.typed").exists()


def test_the_declared_transports_and_options_are_those_there_are() -> None:
    assert set(get_args(TransportName)) == set(TRANSPORTS)
    declared = {name: kind for name, kind in get_type_hints(TransportOptions).items() if name != "mode"}
    options = {
        field.name: field.type
        for name in TRANSPORTS
        for field in fields(transport_class(name).options_class)
        if field.name != "mode"
    }
    assert declared == options


def keys(kind: Any) -> set[str]:
    return set(get_type_hints(kind))


def test_the_declared_counters_are_those_there_are() -> None:
    at = free_endpoint()
    with twinlink.open("memory", listen=at) as twin, twinlink.open("memory", connect=at) as gnb:
        receiver, sync = twin.receiver("spectrum"), twin.sync("spectrum")
        gnb.wait_ready(patience())
        sender = gnb.sender("spectrum")
        sender.send_array(np.zeros(3))
        sender.flush(patience())
        assert receiver.receive(patience())
        assert sync.age_ns() is not None
        sent, received = gnb.stats(), twin.stats()
    assert set(sent) == keys(stats.LinkStats)
    assert set(sent["sent"]["spectrum"]) == keys(stats.SenderStats)
    (delays,) = sent["sent"]["spectrum"]["peers"].values()
    assert set(delays) == keys(stats.PeerDelays)
    assert set(delays["rtt_ns"] or ()) == keys(stats.Percentiles)
    assert set(delays["one_way_ns"] or ()) == keys(stats.OneWayDelay)
    assert set(delays["clock_offset_ns"] or ()) == keys(stats.ClockOffset)
    assert set(received["received"]["spectrum"]) == keys(stats.ReceiverStats)
    assert set(received["received"]["spectrum"]["sync"] or ()) == keys(stats.SyncStats)


def test_a_name_that_is_computed_is_checked() -> None:
    assert transport_name("zenoh") == "zenoh"
    with pytest.raises(twinlink.ConfigurationError, match="zeromqq"):
        transport_name("zeromqq")
