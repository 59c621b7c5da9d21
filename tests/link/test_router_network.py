"""Many nodes on Zenoh routers: which nodes hear each other, and what becomes of messages when a router goes."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import twinlink
from tests.link.routers import routers
from twinlink.testing import free_endpoint, patience, wait_until
from twinlink.testing.base import receive_all

OpenNode = Callable[..., twinlink.Link]
PAIRS = 3
PERIOD_S = 0.005


@pytest.fixture
def node() -> Iterator[OpenNode]:
    """Opens nodes in mode client, which are closed at the end."""
    with ExitStack() as stack:

        def open_node(name: str, connect: str | list[str], namespace: str = "twinlink/cell-7") -> twinlink.Link:
            link = twinlink.open("zenoh", connect=connect, node=name, mode="client", namespace=namespace)
            return stack.enter_context(link)

        yield open_node


class Stream:
    """Sends numbers on a flow until it is told to end; the other side has a receiver for it."""

    def __init__(self, sending: twinlink.Link, receiving: twinlink.Link, flow: str) -> None:
        self.receiver = receiving.receiver(flow)
        self.sender = sending.sender(flow)
        self.sent = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        while not self._ends.wait(PERIOD_S):
            self.sender.send(self.sent.to_bytes(4) + bytes(5000))
            self.sent += 1

    def end(self) -> None:
        """Send no more; then all must be here, in order, once."""
        self._ends.set()
        self._thread.join()
        self.sender.flush(patience())
        received = [int.from_bytes(message.payload[:4]) for message in receive_all(self.receiver, self.sent)]
        assert received == list(range(self.sent))
        assert self.sender.stats()["lost"] == 0


def both_ways(one: twinlink.Link, other: twinlink.Link) -> list[Stream]:
    one.wait_ready(patience())
    other.wait_ready(patience())
    return [Stream(one, other, "spectrum"), Stream(other, one, "control")]


def test_three_pairs_on_one_router_hear_their_own_peer_and_no_other(node: OpenNode) -> None:
    with routers(1) as (router,):
        pairs = [
            [node(f"{side}-{k}", router.endpoint, f"twinlink/cell-{k}") for side in ("gnb", "twin")]
            for k in range(PAIRS)
        ]
        for k, (gnb, twin) in enumerate(pairs):
            gnb.wait_ready(patience())
            twin.wait_ready(patience())
            gnb.sender("spectrum").send(f"spectrum of {k}".encode())
            twin.sender("control").send(f"decision for {k}".encode())
        for k, (gnb, twin) in enumerate(pairs):
            for sending, receiving, flow, text in (
                (gnb, twin, "spectrum", f"spectrum of {k}"),
                (twin, gnb, "control", f"decision for {k}"),
            ):
                sending.sender(flow).flush(patience())
                (message,) = receive_all(receiving.receiver(flow), 1)
                assert (bytes(message.payload), message.node) == (text.encode(), sending.node)
            assert (gnb.peers(), twin.peers()) == ([f"twin-{k}"], [f"gnb-{k}"])


def test_nodes_of_one_namespace_all_hear_each_other(node: OpenNode) -> None:
    with routers(1) as (router,):
        links = [node(name, router.endpoint) for name in ("gnb-1", "gnb-2", "twin")]
        wait_until(lambda: all(len(link.peers()) == 2 for link in links))
        links[0].sender("spectrum").send(b"one copy for each")
        links[0].sender("spectrum").flush(patience())
        for link in links[1:]:
            (message,) = receive_all(link.receiver("spectrum"), 1)
            assert (message.node, bytes(message.payload)) == ("gnb-1", b"one copy for each")


def test_a_router_that_is_killed_and_started_again_costs_no_message(node: OpenNode) -> None:
    with routers(1) as (router,):
        streams = both_ways(node("gnb", router.endpoint), node("twin", router.endpoint))
        wait_until(lambda: all(stream.sent > 50 for stream in streams))
        router.kill()
        time.sleep(2.0)
        router.start()
        after = [stream.sent for stream in streams]
        wait_until(lambda: all(stream.sent > sent + 100 for stream, sent in zip(streams, after, strict=True)))
        for stream in streams:
            stream.end()


def test_nodes_go_over_to_the_next_router_of_their_list(node: OpenNode) -> None:
    with routers(2) as (first, second):
        places = [second.endpoint, first.endpoint]
        streams = both_ways(node("gnb", places), node("twin", places))
        wait_until(lambda: all(stream.sent > 50 for stream in streams))
        second.kill()
        wait_until(lambda: all(stream.sent > 400 for stream in streams))
        for stream in streams:
            stream.end()


def test_a_row_of_routers_carries_both_ways(node: OpenNode) -> None:
    """As of two sites: each node connects to its own site's router."""
    with routers(2) as (site, testbed):
        streams = both_ways(node("gnb", site.endpoint), node("twin", testbed.endpoint))
        wait_until(lambda: all(stream.sent > 50 for stream in streams))
        for stream in streams:
            stream.end()


def test_a_stopped_peer_does_not_hold_up_the_other_cells(node: OpenNode) -> None:
    """The router must not wait for a node that reads nothing on behalf of the others."""
    with routers(1) as (router,):
        stopped = subprocess.Popen(
            [sys.executable, "-c", STOPPED_TWIN, router.endpoint], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert stopped.stdout is not None
            gnb = node("gnb-1", router.endpoint, "twinlink/cell-1")
            assert stopped.stdout.readline() == b"ready\n"
            os.kill(stopped.pid, 19)
            bulk, others = (
                gnb.sender("bulk", overflow="drop-oldest"),
                both_ways(
                    node("gnb-2", router.endpoint, "twinlink/cell-2"),
                    node("twin-2", router.endpoint, "twinlink/cell-2"),
                ),
            )
            for _ in range(200):
                bulk.send(bytes(500_000))
                time.sleep(PERIOD_S)
            for stream in others:
                stream.end()
                rtt_ns = next(iter(stream.sender.stats()["peers"].values()))["rtt_ns"]
                assert rtt_ns is not None
                assert rtt_ns["p50"] < 100_000_000
        finally:
            stopped.kill()
            stopped.communicate(timeout=patience())


STOPPED_TWIN = """
import sys, twinlink
link = twinlink.open("zenoh", connect=sys.argv[1], node="twin-1", mode="client", namespace="twinlink/cell-1")
link.receiver("bulk", handler=lambda message: None)
link.wait_ready(60)
print("ready", flush=True)
sys.stdin.read()
"""


def test_without_a_router_it_waits_and_says_so(node: OpenNode) -> None:
    endpoint = free_endpoint(1)
    link = node("gnb", endpoint)
    with pytest.raises(twinlink.PeerTimeout, match="no Zenoh router answers there") as caught:
        link.wait_ready(0.2)
    assert endpoint in str(caught.value)


def test_a_router_without_the_peer_is_told_apart(node: OpenNode) -> None:
    with routers(1) as (router,):
        gnb, lonely = node("gnb", router.endpoint), node("twin", router.endpoint, "twinlink/cell-8")
        assert lonely.peers() == []

        def says() -> str:
            with pytest.raises(twinlink.PeerTimeout) as caught:
                gnb.wait_ready(0.05)
            return str(caught.value)

        wait_until(lambda: "the router answers" in says())
        assert "the same namespace, 'twinlink/cell-7' here" in says()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"listen": "tcp/127.0.0.1:7447", "mode": "client", "namespace": "a"}, "cannot listen: give connect="),
        ({"connect": "tcp/127.0.0.1:7447", "mode": "client"}, "needs the option namespace"),
        ({"connect": "tcp/127.0.0.1:7447", "mode": "router"}, "one of peer, client, not 'router'"),
        ({"connect": "tcp/127.0.0.1:7447", "mode": 1}, "mode takes str"),
        ({"connect": ["tcp/127.0.0.1:7447", "tcp/127.0.0.1:7448"]}, "mode=client"),
        ({"connect": ["tcp/127.0.0.1:7447", ":7448"], "mode": "client", "namespace": "a"}, "':7448' is not of"),
        ({"connect": [], "mode": "client", "namespace": "a"}, "host:port"),
        *(
            ({"connect": "tcp/127.0.0.1:7447", "mode": "client", "namespace": wrong}, "1 to 8 names joined by slashes")
            for wrong in ("/a", "a/", "a//b", "a b", "a/*", "**", "a$", "@/router", "a\n", "ä", "a/b/c/d/e/f/g/h/i")
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(twinlink.ConfigurationError, match=says):
        twinlink.open("zenoh", **arguments)


def test_other_transports_take_one_endpoint() -> None:
    with pytest.raises(twinlink.ConfigurationError, match="several endpoints are for transport zenoh"):
        twinlink.open("zeromq", connect=["tcp/127.0.0.1:7447", "tcp/127.0.0.1:7449"])


@pytest.mark.parametrize("place", ["command line", "environment", "file"])
def test_a_command_takes_routers_and_namespace_from(place: str, node: OpenNode, tmp_path: Path) -> None:
    with routers(2) as (first, second):
        connect, options = f"{first.endpoint},{second.endpoint}", ["mode=client", "namespace=twinlink/cell-7"]
        arguments, variables = ["--transport", "zenoh"], {}
        if place == "command line":
            arguments += ["--connect", connect, *(word for option in options for word in ("--option", option))]
        elif place == "environment":
            variables = {"TWINLINK_CONNECT": connect, "TWINLINK_OPTION": ",".join(options)}
        else:
            file = tmp_path / "twinlink.toml"
            file.write_text(f"connect = {connect.split(',')}\n[pub]\noption = {options}\n".replace("'", '"'))
            arguments += ["--config", str(file)]
        inbox = node("twin", second.endpoint).receiver("data")
        done = subprocess.run(
            [sys.executable, "-m", "twinlink", "pub", *arguments],
            input="through two routers\n",
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=patience(),
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert bytes(receive_all(inbox, 1)[0].payload) == b"through two routers"
