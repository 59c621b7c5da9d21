"""The queries of the Grafana dashboard of k8s/, as Grafana sends them to Prometheus."""

import json
import re
from pathlib import Path

BOARD = Path(__file__).parents[2] / "k8s/components/monitoring/twinlink-dashboard.json"
METRIC = re.compile(r"\btwinlink_\w+")


def queries(rate_interval: str) -> dict[str, str]:
    """Every query by its panel and letter, of all namespaces, with this as what Grafana makes of $__rate_interval."""
    found = {}
    for panel in json.loads(BOARD.read_text())["panels"]:
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", rate_interval).replace("$namespace", ".*")
            found[f"{panel['title']} ({panel['id']}{target['refId']})"] = query
    return found


def metrics() -> set[str]:
    """The names of all metrics that the dashboard asks for, its variables included."""
    return set(METRIC.findall(BOARD.read_text()))
