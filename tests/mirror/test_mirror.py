"""An observer at a mirror sees both directions of a real link, and delays nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import twinlink
from tests.cli.running import Start
from tests.identity.nodes import make, make_pair, needs_mosquitto
from tests.recording.recordings import pair
from twinlink.mirror import MIRROR_FLOW, Observation
from twinlink.testing import free_endpoint, patience, wait_until
from twinlink.testing.base import wait_for_event
from twinlink.transport_options import TransportName

TRANSPORTS = ["zeromq", "zenoh", "websocket", "tcp", pytest.param("mqtt", marks=needs_mosquitto)]
LONG = bytes(3_000_000)  # travels in fragments


class Looker:
    """What one observer has seen."""

    def __init__(self, link: twinlink.Link) -> None:
        self.observation, self.seen = Observation(), list[twinlink.Message | twinlink.Gap | twinlink.Reordered]()
        link.receiver(MIRROR_FLOW, handler=lambda message: self.seen.extend(self.observation.take(message)))
        link.wait_ready(patience())
        wait_until(lambda: self.observation.peers)

    def payloads(self, flow: str) -> list[bytes]:
        return [bytes(one.payload) for one in self.seen if isinstance(one, twinlink.Message) and one.flow == flow]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_observer_sees_both_directions(transport: TransportName, endpoint: str) -> None:
    at = free_endpoint()
    with (
        pair(transport, endpoint, send_timeout=patience()) as (twin, gnb),
        twin.mirror(at) as mirror,
        twinlink.open(transport, connect=at, node="looker") as link,
    ):
        got: list[twinlink.Message] = []
        twin.receiver("spectrum", handler=got.append)
        gnb.receiver("control", handler=lambda message: None)
        looker = Looker(link)
        spectrum, control = gnb.sender("spectrum"), twin.sender("control")
        sent = [number.to_bytes(4) for number in range(3000)] + [LONG]
        for number, payload in enumerate(sent):
            spectrum.send(payload)
            if number % 100 == 0:
                control.send(b"block %d" % number)
        spectrum.flush(patience())
        wait_until(lambda: len(looker.payloads("spectrum")) == len(sent) == len(got))
        assert looker.payloads("spectrum") == sent
        wait_until(lambda: len(looker.payloads("control")) == 31)
        messages = [one for one in looker.seen if isinstance(one, twinlink.Message)]
        assert {(one.flow, one.node, one.epoch) for one in messages} == {
            ("spectrum", "gnb", gnb.epoch),
            ("control", "twin", twin.epoch),
        }
        # A message is the same that the observed node has: numbers and both times
        assert [one[2:] for one in messages if one.flow == "spectrum"] == [one[2:] for one in got]
        assert (looker.observation.node, looker.observation.peers) == ("twin", {gnb.epoch: "gnb"})
        assert looker.observation.unseen == looker.observation.malformed == 0
        stats = mirror.stats()
        assert (stats["observers"], stats["left_out"], stats["lost"]) == (1, 0, 0)
        assert len(messages) == len(looker.seen)


def test_without_an_observer_nothing_is_on_the_way_of_a_message(endpoint: str) -> None:
    at = free_endpoint()
    with pair("zeromq", endpoint) as (twin, _), twin.mirror(at):
        session = twin._session
        assert "receive" not in vars(session)
        with twinlink.open("zeromq", connect=at, node="looker") as link:
            Looker(link)
            assert "receive" in vars(session)
        wait_until(lambda: "receive" not in vars(session))


STOPPED = """
import sys, twinlink
with twinlink.open("zeromq", connect=sys.argv[1], node="looker") as link:
    link.receiver("twinlink.mirror", handler=lambda message: None)
    link.wait_ready(60)
    print("up", flush=True)
    sys.stdin.read()
"""


def test_a_stopped_observer_delays_nothing_and_what_it_misses_is_counted(endpoint: str) -> None:
    at, payload = free_endpoint(), bytes(100_000)
    with pair("zeromq", endpoint, send_timeout=patience()) as (twin, gnb):
        mirror = twin.mirror(at, queue_octets=4_000_000)
        twin.receiver("x", handler=lambda message: None)
        sender = gnb.sender("x")
        with subprocess.Popen(
            [sys.executable, "-c", STOPPED, at], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as looker:
            assert looker.stdout is not None
            assert looker.stdout.readline() == b"up\n"
            wait_until(lambda: mirror.stats()["frames"] > 0)
            os.kill(looker.pid, signal.SIGSTOP)
            try:
                for _ in range(600):  # 60 MB, more than all that waits for an observer
                    sender.send(payload)
                sender.flush(patience())
                wait_until(lambda: mirror.stats()["left_out"] + mirror.stats()["lost"] > 0)
            finally:
                os.kill(looker.pid, signal.SIGCONT)
                assert looker.stdin is not None
                looker.stdin.close()
        received = twin.stats()["received"]["x"]
        assert (received["received"], received["missing"]) == (600, 0)
        assert gnb.stats()["sent"]["x"]["lost"] == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_with_identities_only_observers_are_admitted(transport: TransportName, endpoint: str, tmp_path: Path) -> None:
    at = free_endpoint()
    twin, gnb = make_pair(tmp_path)
    observer = make(tmp_path, "looker", "observer")
    twin.trust(observer)
    observer.trust(twin)
    with twinlink.open(transport, listen=endpoint, identity=twin.folder) as listener:
        listener.mirror(at)
        with twinlink.open(transport, connect=at, identity=observer.folder) as looker:
            looker.wait_ready(patience())
            assert looker.peers() == ["twin-1"]
        with (
            twinlink.open(transport, connect=at, identity=gnb.folder) as other,
            pytest.raises(twinlink.PeerTimeout),
        ):
            other.wait_ready(2.0)
        with twinlink.open(transport, connect=endpoint, identity=gnb.folder) as other:  # where its role is admitted
            other.wait_ready(patience())
        if transport == "zeromq":  # the others do not tell whose certificate it is
            refused = wait_for_event(listener, twinlink.Refused)
            assert (refused.identity, refused.reason) == ("gnb-1", "role")


def test_a_mirror_ends_with_its_link_and_its_port_is_free(endpoint: str) -> None:
    at = free_endpoint()
    for _ in range(2):
        with twinlink.open("zeromq", listen=endpoint) as link:
            link.mirror(at)
            with pytest.raises(twinlink.TransportError, match="in use"):
                link.mirror(at)
    with pytest.raises(twinlink.ConfigurationError, match="queue_octets"), twinlink.open("memory", listen="a") as link:
        link.mirror("b", queue_octets=0)


def test_list_and_sub_show_what_connectors_send(endpoint: str, start: Start) -> None:
    at = free_endpoint()
    with pair("zeromq", endpoint) as (twin, gnb), twin.mirror(at):
        twin.receiver("telemetry", handler=lambda message: None)
        sender = gnb.sender("telemetry")
        listed = start("list", at, "--time", "1", "--json")
        subscribed = start("sub", at, "telemetry", "--count", "20", "--print", "text")
        while subscribed.process.poll() is None or listed.process.poll() is None:
            sender.send(b"21.5")
            twin.sender("control").send(b"y")
            time.sleep(0.005)
        assert subscribed.out == ["21.5"] * 20
        found = listed.records()[-1]
        assert {(one["flow"], one["node"], one["lost"]) for one in found["flows"]} == {
            ("telemetry", "gnb", 0),
            ("control", "twin", 0),
        }
        assert {(one["node"], one["state"]) for one in found["peers"]} == {("twin", "up"), ("gnb", "up")}
        assert (found["mirror"], found["unseen"]) == ("twin", 0)
