"""Free ports: no process is given those of another, and none that is in use."""

import os
import socket
import subprocess
import sys

import pytest

import twinlink
from twinlink.process import ports
from twinlink.process.ports import free_ports

TELL = "from twinlink.process.ports import free_ports\nprint(*(free_ports(2) for _ in range(150)), flush=True)\ninput()"


def test_processes_that_run_at_the_same_time_are_given_different_ports() -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", TELL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    given = [free_ports(2) for _ in range(150)]
    for each in running:
        assert each.stdout
        given += map(int, each.stdout.readline().split())
    for each in running:
        each.communicate("\n")
    assert len(given) == 600
    assert len({port for first in given for port in (first, first + 1)}) == 1200


def test_a_child_that_is_forked_has_ports_of_its_own() -> None:
    before = {free_ports() for _ in range(20)}
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, b" ".join(b"%d" % free_ports() for _ in range(ports.BLOCK // 2)))
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        of_child = set(map(int, told.read().split()))
    assert len(of_child) == ports.BLOCK // 2
    assert not of_child & (before | {free_ports() for _ in range(ports.BLOCK // 2)})


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_in_use_is_passed_over(kind: socket.SocketKind) -> None:
    middle = free_ports(3) + 1
    with socket.socket(socket.AF_INET, kind) as used:
        used.bind((ports.HOST, middle))
        first = [free_ports(3) for _ in range(ports.BLOCK)]
    assert not {middle - 2, middle - 1, middle} & set(first)
    assert middle in {free_ports() for _ in range(ports.BLOCK)}  # one by one: those beside it may be in use now


def test_where_every_port_is_taken_this_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_is_free", lambda port: False)
    with pytest.raises(twinlink.TransportError, match="no 2 consecutive ones of 400 are free"):
        free_ports(2)
