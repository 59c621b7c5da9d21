"""Settings of a sweep: namespaces, another host with a pong; and MGEN as the source."""

import json
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twinlink_measure import hosts
from twinlink_measure.cells import Plan
from twinlink_measure.hosts import Hosts
from twinlink_measure.namespaces import Namespaces, octets_per_s
from twinlink_measure.remote import PORT_OFFSET
from twinlink_measure.setting import HostLost, SettingError
from twinlink_measure.worker_handle import WorkerLost

import twinlink
from tests.cli.calling import call
from tests.cli.running import PATIENCE_S, Run
from tests.identity.nodes import make_pair
from tests.measure.sweeping import children, measure, table
from twinlink.process.ports import free_ports
from twinlink.testing import patience, wait_until

PORTS_OF_A_PONG = 12  # its own two, and two from 10 above

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: network namespaces need root")
needs_mgen = pytest.mark.skipif(shutil.which("mgen") is None, reason="SKIPPED: mgen is not installed")


def interfaces() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}


@needs_root
def test_two_namespaces_with_a_limited_cable_count_its_octets(tmp_path: Path) -> None:
    before = interfaces()
    octets = 100 * 1024
    plan = Plan(("zeromq", "raw-tcp"), (octets,), count=8, rounds=2, warm_up=2, timeout_s=PATIENCE_S)
    run = measure(tmp_path, plan, Namespaces("50mbit"))
    for cell in run["cells"]:
        assert cell["status"] == "done", cell["reason"]
        sent = table(tmp_path, cell, "sent")
        assert sent["acknowledged"].all()
        # The cable's own law: what exceeds the burst of 64 KiB has to wait for its turn.
        assert sent["rtt_ns"].min() > (octets - 65536) * 8 / 50e6 * 1e9
        for entry in cell["rounds"]:
            forward, back = (entry["wire_octets"][way] / entry["sent"] for way in ("forward", "back"))
            packets = entry["wire_packets"]["forward"] / entry["sent"]
            # Headers of 66 octets for each 1448 of payload, and some more of the protocol; an ack of 88, and TCP's.
            assert octets * 1.04 < forward < octets * 1.08, cell["id"]
            assert octets / 1448 < packets < octets / 1448 * 1.2, cell["id"]
            assert 88 + 66 <= back < 10_000, cell["id"]
    assert interfaces() == before


@needs_root
def test_a_delay_of_the_path_shows_as_the_stated_round_trips(tmp_path: Path) -> None:
    before, delay_ms = interfaces(), 40
    subjects = ("raw-tcp", "raw-modbus", "raw-mqtt-qos2", "raw-uadp")  # 1, 2, 3 and 1 round trips
    plan = Plan(subjects, (100,), ("rw-dt",), count=4, rounds=1, warm_up=1, timeout_s=PATIENCE_S)
    run = measure(tmp_path, plan, Namespaces(delay_ms=delay_ms))
    assert [cell["round_trips"] for cell in run["cells"]] == [1, 2, 3, 1]
    for cell in run["cells"]:
        assert cell["status"] == "done", cell["reason"]
        least = table(tmp_path, cell, "sent")["rtt_ns"].min() / (2e6 * delay_ms)
        assert cell["round_trips"] <= least < cell["round_trips"] + 0.5  # the least: others wait for processors
    assert interfaces() == before


@needs_root
def test_uadp_over_ethernet_needs_the_cable(tmp_path: Path) -> None:
    plan = Plan(("raw-uadp-eth",), (100, 1448, 1449), count=4, rounds=1, warm_up=1, timeout_s=PATIENCE_S)
    run = measure(tmp_path / "cable", plan, Namespaces())
    for cell in run["cells"]:
        if cell["octets"] == 1449:
            assert (cell["status"], cell["reason"][:42]) == ("skipped", "its greatest payload is 1,448 octets: an E")
            continue
        assert cell["status"] == "done", cell["reason"]
        assert table(tmp_path / "cable", cell, "sent")["acknowledged"].all()
        # 20 octets of UADP, 32 of the message's header and 14 of Ethernet; no IP.
        assert cell["rounds"][0]["wire_octets"]["forward"] == 4 * (cell["octets"] + 20 + 32 + 14)
    for cell in measure(tmp_path / "no-cable", plan)["cells"]:
        assert (cell["status"], cell["reason"][:17]) == ("skipped", "it needs Ethernet")


def _fail_in(setting: Namespaces, holders: list[int]) -> None:
    with setting:
        holders += [holder.pid for holder in setting._holders]
        pair = setting.start()
        try:
            assert pair.real_world.ask("system", PATIENCE_S)
            raise RuntimeError("in the midst")
        finally:
            pair.end()


@needs_root
def test_nothing_of_the_namespaces_stays_behind_when_something_fails() -> None:
    before = interfaces()
    setting, holders = Namespaces(), list[int]()
    with pytest.raises(RuntimeError, match="in the midst"):
        _fail_in(setting, holders)
    assert not any(Path(f"/proc/{pid}").exists() for pid in holders)
    assert interfaces() == before
    with pytest.raises(SettingError, match="tc qdisc"), Namespaces("0.01bit"):
        pass
    assert interfaces() == before


@needs_root
@pytest.mark.parametrize(("side", "name"), [(0, "Real World"), (1, "Digital Twin")])
def test_a_namespace_that_has_gone_is_named(side: int, name: str) -> None:
    with Namespaces() as setting:
        setting._holders[side].kill()
        setting._holders[side].wait(PATIENCE_S)
        with pytest.raises(SettingError, match=rf"the {name}'s network namespace is gone.*signal 9"):
            setting.start().end()


@pytest.mark.skipif(os.geteuid() == 0, reason="SKIPPED: with root there is nothing to refuse")
def test_without_root_it_says_what_to_do() -> None:
    with pytest.raises(SettingError, match=r"need root.*loopback"), Namespaces():
        pass


@pytest.mark.parametrize(("text", "octets"), [("8bit", 1), ("100mbit", 12.5e6), ("2.5Gbit", 312.5e6), ("1kbit", 125)])
def test_rates_in_the_words_of_tc(text: str, octets: float) -> None:
    assert octets_per_s(text) == octets


class Sweeping:
    """The command, beside a pong if it is to have one."""

    def __init__(
        self, folder: Path, *arguments: str, beside_pong: bool = False, pong_env: dict[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.pong: Run | None = None
        if beside_pong:
            self.endpoint = f"tcp/127.0.0.1:{free_ports(PORTS_OF_A_PONG)}"
            self.pong = Run(["pong", "--listen", self.endpoint], env=pong_env or {})
            self.pong.wait_for("answers flow")
            arguments = ("--peer", self.endpoint, *arguments)
        self.run = Run(["sweep", *arguments, "--out", str(folder)])

    def content(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "run.json").read_text()))

    def code(self) -> int:
        return self.run.code()

    def end(self) -> None:
        for run in (self.run, self.pong):
            if run is not None:
                if run.process.poll() is None:
                    run.interrupt()
                run.process.wait(PATIENCE_S)


FEW = ("--payloads", "100,20000", "--count", "4", "--rounds", "2", "--warm-up", "2")


def slow_stations(folder: Path) -> dict[str, str]:
    """An environment in which a worker takes as long to start as on an emulated processor."""
    late = 'import sys, time\nif "twinlink_measure.worker" in sys.orig_argv:\n    time.sleep(12)\n'
    (folder / "sitecustomize.py").write_text(late)
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Sweeping]]:
    """The sweeps that take seconds, begun at the same time: they mostly wait."""
    folder = tmp_path_factory.mktemp("begun")
    endless = ("--payloads", "100", "--mode", "open", "--rate", "10", "--count", "100000", "--rounds", "2")
    runs: dict[str, Sweeping] = {}
    try:
        runs["pong goes"] = Sweeping(
            folder / "goes", "--subjects", "zeromq,raw-tcp", *endless, "--timeout", "1", beside_pong=True
        )
        runs["slow pong"] = Sweeping(
            folder / "slow", "--subjects", "raw-tcp", *FEW, "--rounds", "1", "--timeout", "5",
            beside_pong=True, pong_env=slow_stations(folder),
        )  # fmt: skip
        twin, gnb = make_pair(folder)
        runs["pong"] = Sweeping(
            folder / "pong", "--subjects", "zeromq,raw-tcp", *FEW, "--require-identity", "--identity", str(gnb.folder),
            beside_pong=True, pong_env={"TWINLINK_IDENTITY": str(twin.folder)},
        )  # fmt: skip
        if shutil.which("mgen"):
            loopback = ("--source", "mgen", "--setting", "loopback", "--subjects", "zeromq", "--directions", "rw-dt")
            runs["mgen"] = Sweeping(folder / "mgen", *loopback, *FEW, "--payloads", "100,100K")
        yield runs
    finally:
        for run in runs.values():
            run.end()


def test_a_pong_that_has_a_sweep_already_is_not_taken_for_something_else(
    begun: dict[str, Sweeping], tmp_path: Path
) -> None:
    one = begun["pong goes"]
    pong = one.pong
    assert pong
    one.run.wait_for("round 1 of 2")
    wait_until(lambda: children(pong.process.pid))  # the worker has been started
    other = Sweeping(tmp_path / "other", "--peer", one.endpoint, "--subjects", "raw-tcp", *FEW)
    assert other.code() == 1
    reasons = {cell["reason"] for cell in other.content()["cells"]}
    assert all("another sweep is running there; try again when it has ended" in reason for reason in reasons), reasons
    assert not any("should be" in reason for reason in reasons), reasons


def test_a_pong_that_goes_ends_its_cell_and_the_rest_says_why(begun: dict[str, Sweeping]) -> None:
    one = begun["pong goes"]
    pong = one.pong
    assert pong
    one.run.wait_for("round 1 of 2")
    wait_until(lambda: children(pong.process.pid))
    pong.process.kill()
    assert one.code() == 1
    content = one.content()
    assert {cell["status"] for cell in content["cells"]} == {"peer lost"}, content["cells"]
    assert not content["complete"]
    assert "round 1 of 2: no pong at" in one.run.err
    assert "round 2 of 2: no pong at" in one.run.err
    assert "broken off: what was measured until then is kept" in one.run.err


def test_a_sweep_goes_on_with_a_pong_that_was_started_again(tmp_path: Path) -> None:
    slow = ("--payloads", "100", "--mode", "open", "--rate", "50", "--count", "150", "--rounds", "3")
    timeout = ("--timeout", str(patience(5)))
    one = Sweeping(tmp_path / "out", "--subjects", "raw-tcp", *slow, *timeout, beside_pong=True)
    assert one.pong
    try:
        one.run.wait_for("round 1 of 3")
        one.pong.process.kill()
        one.pong.process.wait(PATIENCE_S)
        one.run.wait_for("the rest of the round is left out")
        one.pong = Run(["pong", "--listen", one.endpoint])
        assert one.code() == 1
    finally:
        one.end()
    assert "not acknowledged by" not in one.run.err  # what the pong that died was still told
    content = one.content()
    assert content["complete"]
    reasons = {cell["reason"] for cell in content["cells"] if cell["status"] == "peer lost"}
    (lost,) = {int(reason.split()[1]) - 1 for reason in reasons}  # the first round, unless this test was late to end it
    for cell in content["cells"]:
        rest = {0, 1, 2} - {lost} if cell["status"] == "peer lost" else {0, 1, 2}
        assert rest <= {entry["round"] for entry in cell["rounds"] if entry["sent"] == 50}


def test_the_other_side_may_be_where_a_pong_runs(begun: dict[str, Sweeping]) -> None:
    one = begun["pong"]
    assert one.code() == 0, one.run.err
    content = one.content()
    assert content["setting"] == "hosts"
    assert content["configuration"]["used"]["peer_node"] == "twin-1"
    assert content["complete"]
    assert {each["side"] for each in content["load"]} == {"real_world", "digital_twin"}
    for cell in content["cells"]:
        assert cell["status"] == "done", cell["reason"]
        assert table(one.folder, cell, "sent")["acknowledged"].all()
        assert len(table(one.folder, cell, "received")) == 4
    assert one.pong
    assert children(one.pong.process.pid) == []


def test_no_pong_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    one = Sweeping(tmp_path / "out", "--peer", f"tcp/127.0.0.1:{free_ports(2)}", "--timeout", "0.5", *FEW)
    assert one.code() == 1
    assert "no peer within 0.5 s" in one.run.err
    assert not (tmp_path / "out" / "run.json").exists()


def test_a_peer_that_is_no_endpoint_is_not_waited_for(tmp_path: Path) -> None:
    run = call("sweep", "--peer", "foo:", "--out", str(tmp_path / "out"))
    assert run.code() == 3
    assert "endpoint 'foo:' is not of the form" in run.err
    assert "waits" not in run.err


def test_a_port_in_use_at_the_pong_names_that_host(tmp_path: Path) -> None:
    """``ss`` on this host would show nothing."""
    port = free_ports(PORTS_OF_A_PONG)
    endpoint = f"tcp/127.0.0.1:{port}"
    pong = Run(["pong", "--listen", endpoint])
    try:
        pong.wait_for("answers flow")
        with socket.create_server(("127.0.0.1", port + PORT_OFFSET)):
            one = Sweeping(tmp_path / "out", "--peer", endpoint, "--subjects", "zeromq", *FEW)
            assert one.code() == 1
    finally:
        pong.process.kill()
        pong.process.wait(PATIENCE_S)
    assert f"on the other host ({endpoint}): " in one.run.err
    assert "Address already in use" in one.run.err


def test_a_pong_that_goes_before_its_station_is_there_is_a_lost_peer() -> None:
    endpoint = f"tcp/127.0.0.1:{free_ports(PORTS_OF_A_PONG)}"
    pong = Run(["pong", "--listen", endpoint])
    try:
        pong.wait_for("answers flow")
        with Hosts(endpoint, "zeromq", PATIENCE_S, lambda: False) as setting:
            pong.process.send_signal(signal.SIGSTOP)
            with pytest.raises(WorkerLost, match="is gone"):
                setting.start()
    finally:
        pong.process.kill()
        pong.process.wait(PATIENCE_S)


def test_a_station_may_take_its_time_to_start(begun: dict[str, Sweeping]) -> None:
    one = begun["slow pong"]
    assert one.code() == 0, one.run.err
    assert {cell["status"] for cell in one.content()["cells"]} == {"done"}


def test_a_peer_that_is_no_pong_is_told_from_a_slow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "START_S", 0.5)
    endpoint = f"tcp/127.0.0.1:{free_ports(2)}"
    with twinlink.open("zeromq", listen=endpoint), Hosts(endpoint, "zeromq", PATIENCE_S, lambda: False) as setting:
        monkeypatch.setattr(setting, "_timeout_s", 0.5)  # the link is up: now for an answer that will not come
        with pytest.raises(HostLost, match="it should be `twinlink pong` of this version"):
            setting.start()


def test_a_sweep_that_waits_for_a_pong_can_be_interrupted(tmp_path: Path) -> None:
    endpoint = f"tcp/127.0.0.1:{free_ports(2)}"
    out = tmp_path / "out"
    run = Run(["sweep", "--peer", endpoint, "--timeout", "10000", "--out", str(out)])
    run.wait_for("waits up to 10000 s for the pong")
    run.interrupt()
    assert run.code() == 2
    assert "interrupted" in run.err


@needs_mgen
def test_a_sending_mgen_that_is_killed_ends_its_cell(tmp_path: Path) -> None:
    loopback = ("--source", "mgen", "--setting", "loopback", "--subjects", "zeromq", "--directions", "rw-dt")
    one = Sweeping(tmp_path / "out", *loopback, "--payloads", "100", "--count", "10000", "--rounds", "1")
    try:
        wait_until(lambda: _sending_mgens(one.run.process.pid))
        before = set(Path(tempfile.gettempdir()).glob("twinlink-mgen-*"))
        assert before
        os.kill(_sending_mgens(one.run.process.pid)[0], signal.SIGKILL)
        assert one.code() == 1
    finally:
        one.end()
    (cell,) = one.content()["cells"]
    assert cell["status"] == "failed"
    assert "exit code -9" in cell["reason"]
    assert not before & set(Path(tempfile.gettempdir()).glob("twinlink-mgen-*"))


def _sending_mgens(pid: int) -> list[int]:
    """Processes below this one that run an mgen which sends."""
    found = []
    for child in children(pid):
        try:
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"mgen") and b"txlog" in words:
            found.append(child)
        found += _sending_mgens(child)
    return found


@needs_mgen
def test_mgen_sends_and_receives_and_its_delay_and_the_links_are_apart(begun: dict[str, Sweeping]) -> None:
    one = begun["mgen"]
    assert one.code() == 0, one.run.err
    folder, content = one.folder, one.content()
    assert content["source"] == "mgen"
    found = {cell["id"]: cell["mgen"] for cell in json.loads((folder / "results.json").read_text())["cells"]}
    for cell in content["cells"]:
        for path in content["mgen"][cell["id"]].values():
            assert (folder / path).stat().st_size > 0
        told = found[cell["id"]]
        assert (told["sent"], told["received"], told["errors"]) == (4, 4, 0)
        sent = table(folder, cell, "sent")
        assert sent["acknowledged"].all()
        assert sorted(sent["sequence"]) == [0, 0, 1, 1]
        assert (sent["octets"] == cell["octets"]).all()
        # The link is a part of MGEN's way; its logs count in microseconds.
        assert told["mgen_delay_ns"]["min"] + 1000 >= told["link_delay_ns"]["min"] > 0
