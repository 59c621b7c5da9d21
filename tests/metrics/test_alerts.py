"""The alert rules of k8s/, tried by promtool on series of made-up values."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.metrics.prometheus import program

RULES = Path(__file__).parents[2] / "k8s/components/monitoring/prometheusrule.yaml"
LABELS = '{namespace="ran",pod="gnb-0"'


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    more = "".join(f',{key}="{value}"' for key, value in labels.items())
    return {"series": f"{name}{LABELS}{more}}}", "values": values}


BUILD = series("twinlink_build_info", "1x40")
E3_UP = series("twinlink_e3_session_up", "1x40")
BLOCK = series("twinlink_block_active_prbs", "12x40")
PEER, NO_PEER = series("twinlink_peers", "1x40"), series("twinlink_peers", "0x40")

# Series in steps of 15 s; when the alert must be there, and when not yet; its labels beside namespace and pod
Case = tuple[list[dict[str, str]], str, str, dict[str, str]]
CASES: dict[str, list[Case]] = {
    "TwinlinkNotScraped": [([], "6m", "4m", {"namespace": "", "pod": ""})],
    "TwinlinkDown": [
        ([series("twinlink_build_info", "1x4 _x36", node="gnb-1")], "9m", "3m", {"pod": "", "node": "gnb-1"}),
    ],
    "TwinlinkE3Gone": [([BUILD, PEER, series("twinlink_e3_session_up", "1x4 0x36")], "2m", "1m15s", {})],
    "TwinlinkTwinGone": [([BUILD, E3_UP, NO_PEER], "2m", "45s", {})],
    "TwinlinkTwinStale": [(
        [BUILD, series("twinlink_age_of_information_seconds", "0.1x4 5x36", flow="spectrum")],
        "2m", "1m15s", {"flow": "spectrum"},
    )],
    "TwinlinkTwinOutOfSync": [(
        [BUILD, series("twinlink_replay_sync_state", "0x4 1x36", state="out-of-sync")],
        "2m", "1m15s", {"state": "out-of-sync"},
    )],
    "TwinlinkLosses": [
        ([BUILD, series(name, "7x4 9x36", flow="spectrum")], "2m", "1m", {"flow": "spectrum"})
        for name in ("twinlink_flow_lost_total", "twinlink_flow_missing_total")
    ],
    "TwinlinkBlockStuck": [
        ([BUILD, E3_UP, NO_PEER, BLOCK], "1m", "15s", {}),
        ([BUILD, E3_UP, PEER, BLOCK, series("twinlink_block_remaining_seconds", "1x4 -9x36")], "2m", "1m15s", {}),
    ],
    "TwinlinkBlockUnknown": [([BUILD, E3_UP, PEER, series("twinlink_block_unknown", "0x4 1x36")], "2m", "1m15s", {})],
}  # fmt: skip
HEALTHY = [
    BUILD, E3_UP, PEER,
    series("twinlink_age_of_information_seconds", "0.1x40", flow="spectrum"),
    series("twinlink_replay_sync_state", "0x40", state="out-of-sync"),
    series("twinlink_flow_lost_total", "7x40", flow="spectrum"),
    series("twinlink_flow_missing_total", "7x40", flow="spectrum"),
    BLOCK,
    series("twinlink_block_remaining_seconds", "1.5x40"),
    series("twinlink_block_unknown", "0x40"),
    series("twinlink_build_info", "1x40", node="gnb-1"),
]  # fmt: skip


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """The rules as Prometheus reads them: what the operator makes of a PrometheusRule."""
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(RULES.read_text())["spec"]))
    return path


def promtool(*arguments: str) -> None:
    done = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_can_be_read(rules: Path) -> None:
    promtool("check", "rules", str(rules))


def hold(
    rules: Path, input_series: list[dict[str, str]], expected: list[tuple[str, str, dict[str, str] | None]]
) -> None:
    """Hold the rules to (alert, time, labels with which it fires, or None where it must not)."""
    content = yaml.safe_load(rules.read_text())
    severity = {}
    for group in content["groups"]:
        for rule in group["rules"]:
            severity[rule["alert"]] = rule["labels"]["severity"]
            rule["annotations"] = {}  # what they say to a person needs no trial here
    rules.write_text(yaml.safe_dump(content))
    tests: list[dict[str, Any]] = []
    for alert, at, labels in expected:
        found = [] if labels is None else [{"exp_labels": labels | {"severity": severity[alert]}}]
        tests.append({"eval_time": at, "alertname": alert, "exp_alerts": found})
    test = rules.with_name("test.yaml")
    case = {"interval": "15s", "input_series": input_series, "alert_rule_test": tests}
    test.write_text(yaml.safe_dump({"rule_files": [rules.name], "evaluation_interval": "15s", "tests": [case]}))
    promtool("test", "rules", str(test))


@pytest.mark.parametrize(("alert", "case"), [(alert, case) for alert, cases in CASES.items() for case in cases])
def test_an_alert_comes_when_it_should_and_not_before(alert: str, case: Case, rules: Path) -> None:
    input_series, when, not_yet, more = case
    labels = {name: text for name, text in ({"namespace": "ran", "pod": "gnb-0"} | more).items() if text}
    hold(rules, input_series, [(alert, when, labels), (alert, not_yet, None)])


def test_a_healthy_pair_is_silent(rules: Path) -> None:
    hold(rules, HEALTHY, [(alert, at, None) for alert in CASES for at in ("30s", "9m")])


def test_every_alert_is_tried(rules: Path) -> None:
    named = {rule["alert"] for group in yaml.safe_load(rules.read_text())["groups"] for rule in group["rules"]}
    assert named == set(CASES)
