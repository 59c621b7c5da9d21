"""States over every transport: late joiners, restarts and partitions; at the end all nodes have the same.

``TWINLINK_STATE_HISTORIES=100`` makes longer histories, ``TWINLINK_STATE_PARTITION_S=30`` longer partitions.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

import twinlink
from tests.link.routers import routers
from twinlink.testing import free_endpoint, patience, wait_until
from twinlink.testing.base import drain
from twinlink.transport_options import TransportName

each = pytest.mark.parametrize("transport", ["memory", "zeromq", "zenoh", "websocket", "tcp", "mqtt"])
STEPS = min(200, int(os.environ.get("TWINLINK_STATE_HISTORIES", "12")))
PARTITION_S = float(os.environ.get("TWINLINK_STATE_PARTITION_S", "1"))


def values(link: twinlink.Link) -> dict[tuple[str, str], tuple[int, str, bytes]]:
    """What stands at a node."""
    found = {}
    for item in link.state("cells").items():
        for column, value in item.items():
            found[item.key, column] = value.version, value.set_by, value.payload
    return found


def wait_until_equal(links: list[twinlink.Link], expected: dict[str, bytes] | None = None) -> None:
    """Return when all nodes have the same; ``expected``: some of the desired values."""

    def is_so() -> bool:
        known = [values(link) for link in links]
        has = {key: payload for (key, column), (_, _, payload) in known[0].items() if column == "desired"}
        return all(one == known[0] for one in known) and (expected or {}).items() <= has.items()

    wait_until(is_so)


@each
def test_who_joins_late_gets_all_in_one_message_that_it_need_not_ask_for(transport: TransportName) -> None:
    at = free_endpoint()
    with twinlink.open(transport, listen=at, node="twin") as twin:
        state = twin.state("cells")
        for number in range(200):
            state.desire(f"cell-{number}", b"%d" % number)
        with twinlink.open(transport, connect=at, node="gnb") as gnb:
            joined = gnb.state("cells")
            assert {joined.receive(patience()).key for _ in range(200)} == set(state)  # type: ignore[union-attr]
            assert values(gnb) == values(twin)
            assert twin.stats()["sent"]["state.cells"]["sent"] == 1
            assert gnb.stats()["sent"]["state.cells"]["sent"] == 0
            assert state["cell-1"].desired is not None
            wait_until(lambda: state["cell-1"].desired.acknowledged == ("gnb",))  # type: ignore[union-attr]


@each
def test_with_restarts_and_late_joiners_all_end_equal(transport: TransportName) -> None:
    at, random = free_endpoint(), Random(transport)

    def opened(number: int) -> twinlink.Link:
        side = {"listen": at} if number == 0 else {"connect": at}
        link = twinlink.open(transport, **side, node=f"node-{number}")  # type: ignore[arg-type]
        link.state("cells")
        return link

    links = {0: opened(0)}
    try:
        for step in range(STEPS):
            number = random.randrange(3)
            if number not in links:
                links[number] = opened(number)
            elif random.random() < 0.3 and len(links) > 1:
                links.pop(number).close()
                links[number] = opened(number)
            state = links[number].state("cells")
            for _ in range(random.randrange(4)):
                if random.random() < 0.5:
                    state.desire(f"cell-{random.randrange(5)}", b"%d of %d" % (step, number))
                else:
                    state.report(
                        f"cell-{random.randrange(5)}", b"%d" % step, column=random.choice(["reported", "on-air"])
                    )
            time.sleep(random.choice((0, 0.01, 0.1)))
        wait_until(lambda: all(link.peers() for link in links.values()))
        last = links[max(links)].state("cells")
        last.desire("end", b"end")
        wait_until_equal(list(links.values()), {"end": b"end"})
        assert [error for link in links.values() for error in drain(link, twinlink.InternalError)] == []
    finally:
        for link in links.values():
            link.close()


@pytest.fixture
def path() -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    """Where to listen, where to connect, and what is between, which takes orders (tests/faults/proxy.py)."""
    port = int(free_endpoint().rpartition(":")[2])
    command = [sys.executable, "-m", "tests.faults.proxy", "127.0.0.2", str(port), "2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        assert proxy.stdout.readline() == "listening\n"
        try:
            yield f"tcp/127.0.0.2:{port}", f"tcp/127.0.0.1:{port}", proxy
        finally:
            proxy.kill()


def order(proxy: subprocess.Popen[str], line: str) -> None:
    assert proxy.stdin is not None
    print(line, file=proxy.stdin, flush=True)


@pytest.mark.parametrize("transport", ["zeromq", "zenoh", "websocket", "tcp", "mqtt"])
def test_a_partition_with_changes_on_both_sides_ends_as_the_rule_says(
    transport: TransportName, path: tuple[str, str, subprocess.Popen[str]]
) -> None:
    listen, connect, proxy = path
    with (
        twinlink.open(transport, listen=listen, node="twin") as twin,
        twinlink.open(transport, connect=connect, node="gnb") as gnb,
    ):
        here, there = twin.state("cells"), gnb.state("cells")
        gnb.wait_ready(patience())
        here.desire("before", b"before")
        # Set until it has come: on a busy machine that may be when it has ended.
        wait_until(lambda: here.desire("held", b"held", expires_s=0.75 * PARTITION_S) and "held" in there)
        order(proxy, "stall")
        here.desire("late", b"under way", expires_s=0.75 * PARTITION_S)  # it arrives when it has expired
        here.desire("cell-1", b"early, of twin")
        there.desire("cell-2", b"early, of gnb")
        time.sleep(PARTITION_S / 2)
        there.desire("cell-1", b"later, of gnb")
        here.desire("cell-2", b"later, of twin")
        here.desire("cell-3", b"of twin")
        there.desire("cell-4", b"of gnb")
        here.desire("before", None)
        time.sleep(PARTITION_S / 2)
        assert "held" not in there  # the dead man
        order(proxy, "pass" if transport == "mqtt" else "reset")
        ends = {"cell-1": b"later, of gnb", "cell-2": b"later, of twin", "cell-3": b"of twin", "cell-4": b"of gnb"}
        wait_until_equal([twin, gnb], ends)
        assert set(here) == set(there) == set(ends)
        changes = [change for change in there.changes(timeout=0) if change.key == "late"]
        assert all(change.what == "expired" for change in changes)


def test_through_a_zenoh_router() -> None:
    with routers(1) as (router,):
        options: Any = {"mode": "client", "namespace": "twinlink/cells"}
        links = [
            twinlink.open("zenoh", connect=router.endpoint, node=f"node-{number}", **options) for number in range(3)
        ]
        try:
            for link in links:
                link.state("cells").desire(f"cell-{link.node}", link.node)
            wait_until_equal(links, {f"cell-{link.node}": link.node.encode() for link in links})
            links.pop().close()
            links.append(twinlink.open("zenoh", connect=router.endpoint, node="late", **options))
            links[0].state("cells").desire("cell-node-2", b"again")
            wait_until_equal(links, {"cell-node-2": b"again"})
        finally:
            for link in links:
                link.close()


def test_a_value_that_stands_costs_no_processor_time() -> None:
    at = free_endpoint(1)
    with (
        twinlink.open("memory", listen=at, node="twin") as twin,
        twinlink.open("memory", connect=at, node="gnb") as gnb,
    ):
        gnb.wait_ready(patience())
        twin.state("cells").desire("cell-1", b"1", expires_s=1000)
        wait_until(lambda: "cell-1" in gnb.state("cells"))
        began_s, used_s = time.monotonic(), time.process_time()
        time.sleep(0.5)
        assert time.process_time() - used_s < 0.5 * (time.monotonic() - began_s)
