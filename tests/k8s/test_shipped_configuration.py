"""What the ConfigMaps hold is what the programs take, and what the containers promise is what the programs do."""

import ipaddress
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import zenoh

import twinlink
from tests.k8s.conftest import Built
from tests.k8s.manifests import K8S, OVERLAYS, Document, build, containers, documents, pod_templates
from tests.link.test_no_ipv6 import NO_FILTER, without_ipv6
from twinlink.testing import free_endpoint, patience

TOML = K8S / "base" / "twinlink.toml"
BOARD = K8S / "components" / "monitoring" / "twinlink-dashboard.json"
POLICIES = K8S / "base" / "networkpolicy.yaml"
ROUTER = K8S / "overlays" / "router" / "router.json5"
CONTAINERS = {
    (path.parent.name, container["name"]): container
    for path in (
        K8S / "overlays" / "emulator" / "deployment.yaml",
        K8S / "overlays" / "twin" / "deployment.yaml",
        K8S / "components" / "exporter-sidecar" / "sidecar.yaml",
    )
    for container in containers(documents(path.read_text())[0]["spec"]["template"]["spec"])
}
EXPORTER_LIMIT = 256 * 2**20
EXPORTER_AT_REST = 90 * 2**20  # all libraries loaded, a gNB at 100 records/s and a twin


def check(container: Document, config: Path) -> "subprocess.CompletedProcess[str]":
    """Run the container's program with --check, with the container's arguments and environment."""
    command: list[str] = container.get("command", [container["image"]]) + container.get("args", [])
    given = {variable["name"]: variable["value"] for variable in container.get("env", [])}
    assert given.pop("TWINLINK_CONFIG") == "/etc/twinlink/twinlink.toml"
    assert {"name": "twinlink-config", "mountPath": "/etc/twinlink", "readOnly": True} in container["volumeMounts"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TWINLINK_")}
    return subprocess.run(
        [str(Path(sys.executable).with_name(command[0])), *command[1:], "--check"],
        env=clean | given | {"TWINLINK_CONFIG": str(config)},
        capture_output=True, text=True, check=False, timeout=patience(60),
    )  # fmt: skip


def port(container: Document, name: str) -> int:
    return next(int(each["containerPort"]) for each in container["ports"] if each["name"] == name)


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=["/".join(name) for name in CONTAINERS])
def test_a_container_starts_its_program_with_the_shipped_file(container: Document) -> None:
    done = check(container, TOML)
    assert done.returncode == 0, done.stderr
    served = re.search(r"^http: \[::\]:(\d+)", done.stdout, re.MULTILINE)
    assert served, done.stdout
    assert int(served[1]) == container["ports"][0]["containerPort"]


def test_the_twin_listens_where_the_service_points() -> None:
    container = CONTAINERS["twin", "twinlink-replay"]
    assert f"listening at tcp/[::]:{port(container, 'link')} " in check(container, TOML).stdout
    assert port(container, "link-2") == port(container, "link") + 1


def test_the_exporter_dials_out_and_clears_at_the_start() -> None:
    for place in ("exporter-sidecar", "emulator"):
        said = check(CONTAINERS[place, "twinlink-exporter"], TOML).stdout
        assert "connecting to tcp/twinlink-replay:7447" in said
        assert "a block of before is cleared" in said


def test_no_decision_counts_as_shipped() -> None:
    """Nothing that has to be taken out lets any twin decide."""
    for place in ("exporter-sidecar", "emulator"):
        assert "none, without an identity" in check(CONTAINERS[place, "twinlink-exporter"], TOML).stdout


@pytest.mark.parametrize("overlay", ["emulator", "oai-gnb"])
def test_a_component_lets_any_twin_decide(overlay: str, kubectl: str, tmp_path: Path) -> None:
    of = (os.path.relpath(K8S / folder, tmp_path) for folder in (f"overlays/{overlay}", "components/insecure-control"))
    (tmp_path / "kustomization.yaml").write_text("resources: [{}]\ncomponents: [{}]\n".format(*of))
    ((_, template),) = pod_templates(build(kubectl, tmp_path))
    (exporter,) = [one for one in containers(template["spec"]) if one["name"] == "twinlink-exporter"]
    assert "those of any twin" in check(exporter | {"image": "twinlink-exporter"}, TOML).stdout


def test_every_table_and_key_is_looked_at(tmp_path: Path) -> None:
    """A misspelt key anywhere in the file is refused: the file above passes because its keys are right."""
    config = tomllib.loads(TOML.read_text())
    tables = ("exporter", "replay", "ran-emulator")
    assert config.keys() == {"transport", "protect-prbs", "option", *tables}
    for table in ("", *tables):
        spoilt = tmp_path / "spoilt.toml"
        line = f"[{table}]" if table else "transport"
        text = TOML.read_text().replace(line, f"{line}\nhtpp = 1" if table else "htpp = 1\ntransport", 1)
        spoilt.write_text(text)
        done = check(CONTAINERS["emulator", "twinlink-exporter"], spoilt)
        assert done.returncode == 3, (table, done.stdout)
        assert "htpp" in done.stderr


def test_the_page_says_what_to_change_for_a_router(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (K8S / "README.md").read_text(), re.DOTALL)
    (block,) = [one for one in blocks if "twinlink-router" in one]
    instead = {line.split(" = ")[0] for line in block.splitlines()} | {"listen"}
    kept = [line for line in TOML.read_text().splitlines() if line.split(" = ")[0] not in instead]
    (changed := tmp_path / "twinlink.toml").write_text(block + "\n".join(kept))
    for container in (CONTAINERS["exporter-sidecar", "twinlink-exporter"], CONTAINERS["twin", "twinlink-replay"]):
        done = check(container, changed)
        assert done.returncode == 0, done.stderr
        assert "tcp/twinlink-router:7447" in done.stdout


def test_the_page_names_files_that_are_there() -> None:
    page = (K8S / "README.md").read_text()
    named = re.findall(r"\b(?:k8s/)?((?:base|components|overlays)/[\w./-]*\w)", page)
    assert len(named) > 20
    assert [name for name in named if not (K8S / name).exists()] == []


def test_what_the_link_keeps_fits_the_limit_of_the_exporter() -> None:
    """Two flows that it sends on, one that it reads; how it holds under load is measured elsewhere."""
    options = dict(option.split("=") for option in tomllib.loads(TOML.read_text())["option"])
    kept = 2 * int(options["retention"]) + int(options["window"])
    assert CONTAINERS["exporter-sidecar", "twinlink-exporter"]["resources"]["limits"]["memory"] == "256Mi"
    assert EXPORTER_AT_REST + kept <= EXPORTER_LIMIT * 3 / 4


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_built_config_map_is_the_file(built: Built, overlay: str) -> None:
    file = ROUTER if overlay == "router" else TOML
    maps = [document["data"] for document in built(overlay) if document["kind"] == "ConfigMap"]
    assert {file.name: file.read_text()} in maps
    assert [data for data in maps if data not in ({file.name: file.read_text()}, {BOARD.name: BOARD.read_text()})] == []


@pytest.mark.parametrize(
    ("address", "port"),
    [
        (None, 53),  # a pod of kube-system
        (None, 5353),  # a pod of openshift-dns
        ("169.254.20.10", 53),  # NodeLocal DNSCache, as its manifest has it
        ("fd00:90::1", 53),  # the same in IPv6: Kubernetes' page asks for an address of fd00::/8
    ],
)
def test_the_pods_may_ask_the_cluster_s_dns(address: str | None, port: int) -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in documents(POLICIES.read_text())}

    def is_admitted(peer: Document) -> bool:
        if address is None:
            return peer == {"namespaceSelector": {}}  # pods of every namespace
        return "ipBlock" in peer and ipaddress.ip_address(address) in ipaddress.ip_network(peer["ipBlock"]["cidr"])

    admitted = {
        (each["protocol"], each["port"])
        for rule in policies["twinlink-link-out"]["egress"]
        if any(map(is_admitted, rule.get("to", [])))
        for each in rule["ports"]
    }
    assert {("UDP", port), ("TCP", port)} <= admitted


def shipped_router(port: str) -> zenoh.Config:
    """At another port.  An unknown key is an error here, as it is for the router itself."""
    config = zenoh.Config.from_file(str(ROUTER))
    config.insert_json5("listen/endpoints", config.get_json("listen/endpoints").replace(":7447", f":{port}"))
    return config


def test_a_gnb_and_its_twin_meet_through_the_shipped_router() -> None:
    """Over IPv6 and IPv4: a cluster may have either."""
    at = free_endpoint(1).rpartition(":")[2]
    of_cell: dict[str, Any] = {"mode": "client", "namespace": "twinlink/cell-7"}
    with (
        zenoh.open(shipped_router(at)),
        twinlink.open("zenoh", connect=f"tcp/[::1]:{at}", node="twin-1", **of_cell) as twin,
        twinlink.open("zenoh", connect=f"tcp/127.0.0.1:{at}", node="gnb-1", **of_cell) as gnb,
    ):
        receiver = twin.receiver("spectrum")
        gnb.wait_ready(timeout=patience())
        sender = gnb.sender("spectrum")
        for sequence in range(100):
            sender.send(bytes([sequence]))
        sender.flush(timeout=patience())
        received = [receiver.receive(timeout=patience()) for _ in range(100)]
        assert [message and message.payload[0] for message in received] == list(range(100))


ROUTER_ALONE = """
import zenoh
from tests.k8s.test_shipped_configuration import shipped_router
from twinlink.testing import free_endpoint, patience
port = free_endpoint(1).rpartition(":")[2]
with zenoh.open(shipped_router(port)):
    socket.create_connection(("127.0.0.1", int(port)), patience()).close()
"""


@pytest.mark.skipif(NO_FILTER, reason="the filter has the numbers of two architectures")
def test_the_shipped_router_listens_on_a_node_without_ipv6() -> None:
    done = subprocess.run(
        [sys.executable, "-c", without_ipv6(ROUTER_ALONE)],
        capture_output=True, text=True, check=False, timeout=patience(30), cwd=K8S.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
