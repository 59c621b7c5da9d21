"""Experiments with a PLC as the client of others: the sweep of a server shows as such."""

import urllib.request
from pathlib import Path

from pymodbus.client import ModbusTcpClient
from twinlink_measure.experiments import plc
from twinlink_measure.experiments.program import Program

from tests.measure.experimenting import Part, quiet
from twinlink.process.ports import free_ports


def test_a_sweep_shows_once_for_each_request(tmp_path: Path) -> None:
    exchanges, sweep_ms = 4, 60
    common = {"sweep_ms": [sweep_ms], "processing_ms": [0]}
    parts: list[Part] = [
        {"protocol": "http", "servers": [[164]], **common},
        {"protocol": "modbus", "firmware": True, "servers": [[40, 124]], **common},
    ]
    http, modbus = plc.measure(quiet(tmp_path, "plc-cycles", {"exchanges": exchanges}, parts))
    for row, requests in ((http, 1), (modbus, 2)):
        assert (row.status, row.n) == ("done", exchanges), row.reason
        # Each answer ends a sweep of its own; what comes before the first end is any part of a sweep.
        assert sum(row.values) > (requests * exchanges - 1) * sweep_ms - 1
    assert (modbus.figures["min"] or 0) > sweep_ms - 1
    assert http.figures["late_1000"] == 0


def test_an_application_takes_the_answer_in_a_later_cycle(tmp_path: Path) -> None:
    parts = [{"protocol": "http", "servers": [[164], [124]], "sweep_ms": [5], "processing_ms": [40], "setup": "pair"}]
    rows = plc.measure(quiet(tmp_path, "plc-pair", {"exchanges": 3}, parts))
    assert [row.case["server"] for row in rows] == ["PLC1", "PLC2"]
    assert all((row.figures["min"] or 0) > 39 for row in rows)


def test_the_servers_speak_to_any_client() -> None:
    port = free_ports()
    given = {"protocol": "http", "host": "127.0.0.1", "port": port, "words": 3, "sweep_ms": 1}
    with Program("words_server", given) as server:
        server.ready()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/words", timeout=30) as response:
            assert response.read() == b"     0     1     2"
    port = free_ports()
    with Program("words_server", {**given, "protocol": "modbus", "port": port}) as server:
        server.ready()
        client = ModbusTcpClient("127.0.0.1", port=port, timeout=30)
        client.connect()  # type: ignore[no-untyped-call]
        assert client.read_holding_registers(0, count=3, device_id=1).registers == [0, 0, 0]
        client.close()  # type: ignore[no-untyped-call]
