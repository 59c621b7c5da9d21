"""The network faults, each applied to one TCP connection between two namespaces; needs root."""

import ctypes
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from twinlink.testing import base

from . import faults
from .marks import needs_namespaces
from .world import PREFIX, World, ip

CLONE_NEWNET = 0x40000000
WAIT_S = {True: base.patience(), False: 0.4}  # by whether it is expected to come


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World("sockets") as made:
        yield made


def socket_in(namespace: str) -> socket.socket:
    """A TCP socket that lives in a namespace: a thread enters it, the socket stays there."""
    made: list[socket.socket] = []

    def make() -> None:
        with Path("/run/netns", namespace).open() as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        made.append(socket.socket())

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    made[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made[0]


class Wire:
    """A TCP connection from the Real World's namespace to the Digital Twin's."""

    def __init__(self, world: World) -> None:
        self.world = world
        with socket_in(world.dt) as listener:
            listener.bind((world.listener, 0))
            listener.listen()
            self.rw = socket_in(world.rw)
            self.rw.settimeout(base.patience())
            self.rw.connect(listener.getsockname())
            self.dt, _ = listener.accept()

    def passes(self, sender: socket.socket, octets: int, within_s: float = WAIT_S[False]) -> bool:
        """Whether so many octets get to the other end."""
        receiver = self.dt if sender is self.rw else self.rw
        receiver.settimeout(within_s)
        sender.sendall(bytes(octets))
        try:
            while octets:
                octets -= len(receiver.recv(octets))
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self.rw.close()
        self.dt.close()


@pytest.fixture
def wire(world: World) -> Iterator[Wire]:
    made = Wire(world)
    yield made
    made.close()


class OnlyWorld:
    """A place without nodes."""

    def __init__(self, world: World) -> None:
        self.world = world

    def __getattr__(self, name: str) -> None:
        raise AssertionError(f"a fault of the network wants {name}")


@needs_namespaces
@pytest.mark.parametrize(
    ("fault", "to_dt", "to_rw"),
    [
        (faults.Partition(), False, False),
        (faults.OneWay("rw-dt"), False, True),
        (faults.OneWay("dt-rw"), True, False),
        (faults.Drop(999), False, False),
        (faults.Drop(1), True, True),
    ],
    ids=str,
)
def test_a_filter_holds_what_it_says(world: World, wire: Wire, fault: faults.Fault, to_dt: bool, to_rw: bool) -> None:
    place = OnlyWorld(world)
    assert wire.passes(wire.rw, 10, WAIT_S[True])
    fault.begin(place)  # type: ignore[arg-type]
    # Three times, for one packet of a thousand passes by chance.
    through = [
        all(wire.passes(sender, 10, WAIT_S[to]) for _ in range(3))
        for sender, to in ((wire.rw, to_dt), (wire.dt, to_rw))
    ]
    fault.end(place)  # type: ignore[arg-type]
    assert through == [to_dt, to_rw]


@needs_namespaces
def test_a_pmtu_hole_swallows_what_is_long(world: World, wire: Wire) -> None:
    place = OnlyWorld(world)
    faults.PmtuHole().begin(place)  # type: ignore[arg-type]
    short, long = wire.passes(wire.rw, 1000, WAIT_S[True]), wire.passes(wire.rw, 1448)
    faults.PmtuHole().end(place)  # type: ignore[arg-type]
    assert (short, long) == (True, False)


@needs_namespaces
@pytest.mark.parametrize("fault", [faults.Reset(), faults.KillSockets("dt"), faults.KillSockets("rw")], ids=str)
def test_a_connection_is_reset(world: World, wire: Wire, fault: faults.Fault) -> None:
    place = OnlyWorld(world)
    fault.begin(place)  # type: ignore[arg-type]

    def use() -> None:
        for _ in range(20):
            wire.passes(wire.rw, 10)
            wire.passes(wire.dt, 10)

    with pytest.raises(OSError, match=r"reset|abort|Broken pipe"):
        use()
    fault.end(place)  # type: ignore[arg-type]


@needs_namespaces
def test_a_rate_limit_takes_its_time(world: World, wire: Wire) -> None:
    place = OnlyWorld(world)
    faults.RateLimit(5).begin(place)  # type: ignore[arg-type]
    began = time.monotonic()
    assert wire.passes(wire.rw, 500_000, base.patience())
    took_s = time.monotonic() - began
    faults.RateLimit(5).end(place)  # type: ignore[arg-type]
    assert took_s > 0.4  # 4 Mbit at 5 Mbit/s, less the bucket


@needs_namespaces
def test_a_world_leaves_nothing_behind() -> None:
    before = ip("netns", "list")

    def fail() -> None:
        with World("gone"):
            assert "gone" in ip("netns", "list")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert ip("netns", "list") == before


@needs_namespaces
def test_a_world_removes_what_a_killed_lab_left() -> None:
    with subprocess.Popen(["sleep", "0"]) as process:
        process.wait()
    name = f"{PREFIX}-{process.pid}-dead-rw"
    ip("netns", "add", name)
    with World("next"):
        assert name not in ip("netns", "list")
