"""Subjects of other systems: every message is carried and answered, in as many round trips as is stated."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import PATIENCE_S
from tests.measure.sweeping import measure, table
from twinlink.errors import ConfigurationError
from twinlink.measure.cells import Plan
from twinlink.measure.channels import SUBJECTS, SYSTEMS, check
from twinlink.measure.setting import Loopback, Truth

ONE_WAY_NS = 10_000_000
COUNT = 4
SPLIT = 3000  # octets; several requests where the protocol splits


@pytest.mark.parametrize("subject", ["raw-mqtt-qos1", "raw-mqtt-qos2", "raw-websocket", "raw-websocket-hub"])
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
        assert sent["rtt_ns"].min() // (2 * ONE_WAY_NS) == cell["round_trips"], cell["id"]


def test_every_subject_belongs_to_one_system() -> None:
    assert sorted(name for names in SYSTEMS.values() for name in names) == sorted(SUBJECTS)


@pytest.mark.parametrize(
    ("subject", "options", "told"),
    [
        ("raw-tcp", {"no_delay": False}, "subject 'raw-tcp' has no option no_delay; it takes none"),
        ("raw-mqtt", {"qos": 1}, "subject 'raw-mqtt' has no option qos; it takes no_delay"),
        ("raw-mqtt-qos2", {"no_delay": 0}, "no_delay must be true or false, not 0"),
    ],
)
def test_a_wrong_option_is_named(subject: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        check(subject, options)
