"""Subjects of other systems: every message is carried and answered, in as many round trips as is stated."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.running import PATIENCE_S
from tests.measure.sweeping import measure, table
from twinlink.errors import ConfigurationError, TransportMissing
from twinlink.measure.cells import Plan
from twinlink.measure.channels import SUBJECTS, SYSTEMS, channel, check
from twinlink.measure.setting import Loopback, Truth
from twinlink.transports import Endpoint

ONE_WAY_NS = 10_000_000
COUNT = 5
POLLED = ["raw-http", "raw-modbus"]
SPLIT = 1500  # octets; several requests where the protocol splits


@pytest.mark.parametrize(
    "subject",
    ["raw-mqtt-qos1", "raw-mqtt-qos2", "raw-websocket", "raw-websocket-hub", "raw-http", "raw-http-new", "raw-modbus"],
)
def test_an_exchange_takes_the_stated_round_trips(subject: str, tmp_path: Path) -> None:
    plan = Plan((subject,), (100, SPLIT), count=COUNT, rounds=1, warm_up=1, timeout_s=PATIENCE_S)
    run = measure(tmp_path, plan, Loopback(Truth(forward_delay_ns=ONE_WAY_NS, back_delay_ns=ONE_WAY_NS)))
    assert len(run["cells"]) == 4
    for cell in run["cells"]:
        assert (cell["status"], cell["reason"]) == ("done", None)
        sent, received = table(tmp_path, cell, "sent"), table(tmp_path, cell, "received")
        assert sent["acknowledged"].all(), cell["id"]
        assert received["sequence"].tolist() == list(range(COUNT)), cell["id"]
        assert (received["octets"] == cell["octets"]).all(), cell["id"]
        stated = cell["round_trips"]
        if subject == "raw-http-new":
            stated //= 2  # the relay accepts a connection by itself, without delay
        assert np.median(sent["rtt_ns"]) // (2 * ONE_WAY_NS) == stated, cell["id"]


@pytest.mark.parametrize("subject", POLLED)
def test_requests_wait_for_the_end_of_the_servers_sweep(subject: str, tmp_path: Path) -> None:
    sweep_ms = 20
    plan = Plan((subject,), (100,), count=COUNT, rounds=1, warm_up=1, options={subject: {"sweep_ms": sweep_ms}})
    for cell in measure(tmp_path, plan)["cells"]:
        rtt_ms = np.median(table(tmp_path, cell, "sent")["rtt_ns"]) / 1e6
        assert round(rtt_ms / sweep_ms) == cell["round_trips"], cell["id"]


def test_a_message_waits_for_the_next_poll_whenever_it_is_sent(tmp_path: Path) -> None:
    poll_ms = 30
    options = {"raw-http": {"poll_ms": poll_ms}}
    plan = Plan(("raw-http",), (100,), count=80, rounds=1, warm_up=1, options=options)
    ages = []
    for cell in measure(tmp_path, plan)["cells"]:
        received = table(tmp_path, cell, "received")
        ages.append(np.median(received["received_ns"] - received["sent_ns"]) / 1e6 / poll_ms)
    assert ages[0] < 0.25 < ages[1] < 0.9  # only the client's side is polled for


@pytest.mark.parametrize("subject", POLLED)
def test_the_table_says_what_is_polled(subject: str) -> None:
    known = SUBJECTS[subject]
    assert {"poll_ms", "sweep_ms"} <= {*known.settable}
    assert "dt-rw" in known.polled


@pytest.mark.parametrize("subject", ["raw-modbus"])
def test_the_greatest_payload_is_carried_and_more_is_skipped(subject: str, tmp_path: Path) -> None:
    greatest = SUBJECTS[subject].greatest
    assert greatest is not None
    payloads = (greatest[0], greatest[0] + 1)
    plan = Plan((subject,), payloads, ("rw-dt",), count=1, rounds=1, warm_up=0, timeout_s=PATIENCE_S)
    whole, skipped = measure(tmp_path, plan)["cells"]
    assert whole["status"] == "done"
    assert (table(tmp_path, whole, "received")["octets"] == greatest[0]).all()
    assert (skipped["status"], skipped["rounds"]) == ("skipped", [])
    assert skipped["reason"].startswith(f"its greatest payload is {greatest[0]:,} octets: ")


def test_every_subject_belongs_to_one_system() -> None:
    assert sorted(name for names in SYSTEMS.values() for name in names) == sorted(SUBJECTS)


@pytest.mark.parametrize(
    ("subject", "options", "told"),
    [
        ("raw-tcp", {"no_delay": False}, "subject 'raw-tcp' has no option no_delay; it takes none"),
        ("raw-mqtt", {"qos": 1}, "subject 'raw-mqtt' has no option qos; it takes no_delay"),
        ("raw-http", {"poll_ms": -1}, "poll_ms must be a number of ms from 0 to 10,000, not -1"),
        ("raw-http", {"sweep_ms": True}, "sweep_ms must be a number of ms from 0 to 2,000, not True"),
        ("raw-mqtt-qos2", {"no_delay": 0}, "no_delay must be true or false, not 0"),
    ],
)
def test_a_wrong_option_is_named(subject: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        check(subject, options)


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "twinlink.measure.channels.http", raising=False)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    told = r"'raw-http' is not installed .*aiohttp.*pip install 'twinlink\[industrial\]'"
    with pytest.raises(TransportMissing, match=told):
        channel("raw-http", Endpoint("127.0.0.1", 1), True, "digital-twin")
