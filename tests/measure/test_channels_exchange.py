"""Subjects of other systems: every message is carried and answered, in as many round trips as is stated."""

import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from twinlink_measure.cells import Plan
from twinlink_measure.channels import SUBJECTS, channel, check
from twinlink_measure.setting import Loopback, Truth

from tests.cli.running import PATIENCE_S
from tests.measure.sweeping import measure, table
from twinlink.appkit.records import Table
from twinlink.errors import ConfigurationError, TransportMissing
from twinlink.transports import Endpoint

ONE_WAY_NS, FAR_NS = 15_000_000, 60_000_000
COUNT = 5
SPLIT = 1500  # octets; several requests where the protocol splits
SWEEP_MS, POLL_MS = 20, 60
SWEPT = ("raw-http", "raw-modbus", "raw-s7", "raw-opcua")
POLLED = ("raw-http", "raw-opcua-sub")
DELAYED = (
    *("raw-mqtt-qos1", "raw-mqtt-qos2", "raw-websocket", "raw-websocket-hub"),
    *("raw-http-new", "raw-modbus", "raw-s7", "raw-opcua-sub"),
)
FAR = ("raw-zenoh",)


def delayed(folder: Path, subject: str) -> dict[str, Any]:
    plan = Plan((subject,), (100, SPLIT), count=COUNT, rounds=1, warm_up=1, timeout_s=PATIENCE_S)
    return measure(folder, plan, Loopback(Truth(forward_delay_ns=ONE_WAY_NS, back_delay_ns=ONE_WAY_NS)))


def far(folder: Path, subject: str) -> dict[str, Any]:
    plan = Plan((subject,), (100,), ("rw-dt",), count=2, rounds=1, warm_up=1)
    return measure(folder, plan, Loopback(Truth(forward_delay_ns=FAR_NS, back_delay_ns=FAR_NS)))


def swept(folder: Path, subject: str) -> dict[str, Any]:
    options = {subject: {"sweep_ms": SWEEP_MS}}
    return measure(folder, Plan((subject,), (100,), count=COUNT, rounds=1, warm_up=1, options=options))


def polled(folder: Path, subject: str) -> dict[str, Any]:
    options = {subject: {"publishing_ms" if subject == "raw-opcua-sub" else "poll_ms": POLL_MS}}
    return measure(folder, Plan((subject,), (100,), count=20, rounds=1, warm_up=1, options=options))


Begun = dict[tuple[Any, str], tuple[Path, Future[dict[str, Any]]]]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Begun]:
    """All of them, several at the same time: they mostly wait."""
    runs = ((delayed, DELAYED), (far, FAR), (swept, SWEPT), (polled, POLLED))
    wanted = [(how, name) for how, names in runs for name in names]
    with ThreadPoolExecutor(3) as pool:
        found: Begun = {}
        for how, subject in wanted:
            folder = tmp_path_factory.mktemp(subject)
            found[how, subject] = folder, pool.submit(how, folder, subject)
        yield found


def whole(folder: Path, cell: dict[str, Any]) -> Table:
    """What was sent in a cell in which every message was carried and answered."""
    assert (cell["status"], cell["reason"]) == ("done", None)
    sent, received = table(folder, cell, "sent"), table(folder, cell, "received")
    assert sent["acknowledged"].all(), cell["id"]
    assert received["sequence"].tolist() == list(range(COUNT)), cell["id"]
    assert (received["octets"] == cell["octets"]).all(), cell["id"]
    return sent


@pytest.mark.parametrize("subject", DELAYED)
def test_an_exchange_takes_the_stated_round_trips(subject: str, begun: Begun) -> None:
    folder, run = begun[delayed, subject]
    assert len(run.result()["cells"]) == 4
    for cell in run.result()["cells"]:
        sent = whole(folder, cell)
        stated = cell["round_trips"]
        if subject == "raw-http-new":
            stated //= 2  # the relay accepts a connection by itself, without delay
        trips = sent["rtt_ns"] / (2 * ONE_WAY_NS)
        # A message may meet a poll in the middle of its round trip, and then waits for less than a whole one.
        assert np.median(trips) > stated - 0.5, cell["id"]
        assert trips.min() < 2 * stated + 1, cell["id"]  # on a busy machine most take longer


@pytest.mark.parametrize("subject", FAR)
def test_a_session_is_opened_over_a_long_path(subject: str, begun: Begun) -> None:
    """It takes several round trips, for which its library has a time limit."""
    _, run = begun[far, subject]
    (cell,) = run.result()["cells"]
    assert (cell["status"], cell["reason"]) == ("done", None)


@pytest.mark.parametrize("subject", SWEPT)
def test_requests_wait_for_the_end_of_the_servers_sweep(subject: str, begun: Begun) -> None:
    folder, run = begun[swept, subject]
    for cell in run.result()["cells"]:
        sweeps = whole(folder, cell)["rtt_ns"] / 1e6 / SWEEP_MS
        assert np.median(sweeps) > cell["round_trips"] - 0.5, cell["id"]
        assert sweeps.min() < cell["round_trips"] + 1, cell["id"]  # on a busy machine most take longer


@pytest.mark.parametrize("subject", POLLED)
def test_a_message_waits_for_the_next_poll_whenever_it_is_sent(subject: str, begun: Begun) -> None:
    folder, run = begun[polled, subject]
    to_server, to_client = run.result()["cells"]
    for cell, waits in ((to_server, False), (to_client, True)):
        received = table(folder, cell, "received")
        ages_ms = (received["received_ns"] - received["sent_ns"]) / 1e6
        if waits:
            assert np.median(ages_ms) > POLL_MS / 4, cell["id"]
        # On a busy machine some take longer.
        assert np.percentile(ages_ms, 25) < POLL_MS * (0.75 if waits else 0.25), cell["id"]


@pytest.mark.parametrize("subject", ["raw-modbus", "raw-s7", "raw-uadp"])
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


def test_what_waits_longer_than_the_time_out_is_skipped(tmp_path: Path) -> None:
    options: dict[str, dict[str, Any]] = {"raw-http": {"poll_ms": 6000}, "raw-s7": {"sweep_ms": 2000}}
    plan = Plan(tuple(options), (1000,), ("rw-dt",), options=options)
    told = [cell["reason"] for cell in measure(tmp_path, plan)["cells"]]
    assert told == [
        f"an exchange takes up to {seconds} s of sweeps and polls: give a --timeout above that, not 5"
        for seconds in (6, 8)  # three requests to write, one to read
    ]


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
    monkeypatch.delitem(sys.modules, "twinlink_measure.channels.http", raising=False)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    told = r"'raw-http' is not installed .*aiohttp.*pip install 'twinlink\[industrial\]'"
    with pytest.raises(TransportMissing, match=told):
        channel("raw-http", Endpoint("127.0.0.1", 1), True, "digital-twin")
