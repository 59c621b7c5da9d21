"""Experiments with a PLC and a hub, and the statistics over their rows."""

import os
from pathlib import Path
from typing import Any

import pytest
from snap7.client import Client
from twinlink_measure.experiments import analysis, hub, node_red
from twinlink_measure.experiments.outcome import Row
from twinlink_measure.experiments.program import Program, ProgramFailed

from tests.measure.experimenting import Part, quiet
from twinlink.process.ports import free_ports
from twinlink.testing import wait_until


def measured(folder: Path, name: str, protocols: set[str], **counts: Any) -> list[Row]:
    """The local parts of an experiment with these protocols, on loopback."""

    def chosen(part: Part) -> bool:
        return part["protocol"] in protocols and part["case"].get("path") != "cloud"

    return hub.measure(quiet(folder, name, {"update_ms": 50, **counts}, chosen))


@pytest.mark.parametrize(("name", "protocols"), [("hub-rtt", {"websocket", "modbus"}), ("hub-direct", {"opcua"})])
def test_a_boolean_goes_to_the_plc_and_back(name: str, protocols: set[str], tmp_path: Path) -> None:
    rows = measured(tmp_path, name, protocols, repetitions=3)
    assert {row.case["protocol"] for row in rows} == protocols
    assert all((row.status, row.n, row.missing) == ("done", 3, 0) for row in rows), rows


def test_the_usage_of_each_process_is_a_series(tmp_path: Path) -> None:
    rows = measured(tmp_path, "hub-resources", {"mqtt"}, repetitions=20)
    assert {row.case["process"] for row in rows} == {"twin", "plc", "hub", "broker"}
    for row in rows:
        assert row.n >= 1
        assert (row.figures["memory_min"] or 0) > 1
        assert (tmp_path / (row.records or "")).is_file()


@pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: network namespaces need root")
def test_the_sizes_of_packets_are_those_of_the_protocol(tmp_path: Path) -> None:
    run = quiet(tmp_path, "hub-bandwidth", {"update_ms": 50, "seconds": 2.5}, lambda part: part["protocol"] == "modbus",
                "netns")  # fmt: skip
    (row,) = hub.measure(run)
    assert row.status == "done", row.reason
    # Ethernet, IP and TCP have 66 octets with time stamps; 78 with a request of one register, at most 83 with any.
    assert min(row.sizes) == 66
    assert 78 in row.sizes
    assert max(row.sizes) <= 83
    assert (tmp_path / hub.PACKETS).stat().st_size > 1000


def test_the_plc_speaks_s7_to_any_client() -> None:
    port = free_ports()
    given = {"protocol": "s7", "host": "127.0.0.1", "port": port, "cycle_ms": 5}
    with Program("plc_program", given) as plc:
        plc.ready()
        client = Client()
        client.connect("127.0.0.1", 0, 1, port)
        for value in (1, 0):
            client.db_write(1, 0, bytearray([value]))
            wait_until(lambda value=value: client.db_read(2, 0, 1)[0] == value)  # type: ignore[misc]
        client.disconnect()


def test_a_program_that_fails_says_why() -> None:
    with (
        Program("plc_program", {"protocol": "profinet"}) as plc,
        pytest.raises(ProgramFailed, match="plc_program ended"),
    ):
        plc.ready()


def test_the_correlations_of_the_paper_are_reproduced_from_its_table() -> None:
    rtt = (94.1, 70.8, 93.1, 43.8)  # MQTT, Modbus, OPC UA, WebSocket
    for cpu, expected in (
        ((55.8, 32.3, 24.7, 52.3), -0.31),
        ((21, 26.4, 27.9, 32.5), -0.79),
        ((2.2, 4.2, 3.2, 1.1), 0.46),
    ):
        found = analysis.correlation(list(zip(cpu, rtt, strict=True)))
        assert found is not None
        assert found["r"] == pytest.approx(expected, abs=0.005)
        assert found["ci95"][0] < 0 < found["ci95"][1]  # four points say nothing
    assert analysis.correlation([(1, 1), (2, 2)]) is None


def test_the_effect_size_is_the_share_that_the_groups_explain() -> None:
    found = analysis.variance([[1, 2, 3], [11, 12, 13]])
    assert found is not None
    assert found["eta_squared"] == pytest.approx(150 / 154)
    assert found["omega_squared"] == pytest.approx(149 / 155)
    assert found["df"] == [1, 4]
    same = analysis.variance([[1, 2, 3], [1, 2, 3]])
    assert same is not None
    assert same["eta_squared"] == pytest.approx(0)
    assert same["p"] == pytest.approx(1)
    assert analysis.variance([[1, 1], [1, 1]]) is None


@pytest.mark.parametrize("protocol", node_red.FLOWS)
def test_each_wire_of_the_flow_leads_to_a_node(protocol: str) -> None:
    given = {"protocol": protocol, "host": "h", "port": 1, "plc_host": "p", "plc_port": 2, "poll_ms": 50}
    nodes = node_red.flow(given)
    names = {node["id"] for node in nodes}
    assert len(names) == len(nodes)
    wires = {to for node in nodes for output in node.get("wires", []) for to in output}
    clock = {"ask"} if protocol == "opcua" else set()
    assert wires == {"unpack", "to plc", "pack", "to twin"} | clock <= names
    for node in nodes:
        assert {node[key] for key in ("z", "endpoint", "server", "broker") if key in node} - {"h", ""} <= names


def test_opc_ua_goes_through_a_node_red_that_has_its_nodes(tmp_path: Path) -> None:
    part = {"hub": True, "protocol": "opcua"}
    assert not node_red.carries(part, tmp_path)
    (tmp_path / node_red.OPCUA_NODES).mkdir(parents=True)
    assert node_red.carries(part, tmp_path)
    assert not node_red.carries(part | {"hub": False}, tmp_path)


def test_a_node_red_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ProgramFailed, match=r"Node-RED is not there: .*red\.js.*node-red-contrib-s7"):
        node_red.NodeRed(tmp_path, {"protocol": "mqtt"})
