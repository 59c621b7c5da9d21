"""The rules of k8s/ that no schema holds, on the files as they stand and as kubectl builds them."""

import json
import subprocess
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.k8s import rules
from tests.k8s.conftest import Built
from tests.k8s.manifests import K8S, OVERLAYS, Document, build, documents

BEFORE_BUILDING = (rules.guaranteed, rules.locked, rules.probed, rules.never_two)
STAND_ALONE = ("emulator", "twin", "router")


@pytest.mark.parametrize("overlay", STAND_ALONE)
def test_a_deployment_keeps_the_rules_before_it_is_built(overlay: str) -> None:
    source = documents((K8S / "overlays" / overlay / "deployment.yaml").read_text())
    checked = (*BEFORE_BUILDING, rules.chosen_by_the_cluster, rules.settled)
    assert [complaint for rule in checked for complaint in rule(source)] == []


def test_the_sidecar_keeps_the_rules_before_it_is_built() -> None:
    sidecar = documents((K8S / "components" / "exporter-sidecar" / "sidecar.yaml").read_text())
    assert [complaint for rule in (rules.guaranteed, rules.locked, rules.probed) for complaint in rule(sidecar)] == []


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_keeps_the_rules(built: Built, overlay: str) -> None:
    assert rules.complaints(overlay, built(overlay)) == []


def first(built: list[Document], kind: str) -> Any:
    return next(document for document in built if document["kind"] == kind)


def pod(built: list[Document]) -> Any:
    return first(built, "Deployment")["spec"]["template"]["spec"]


def volume(built: list[Document], name: str) -> Any:
    return next(one for one in pod(built)["volumes"] if one["name"] == name)


MISTAKES: list[tuple[str, Callable[[list[Document]], Any], str]] = [
    ("emulator", lambda b: pod(b)["securityContext"].update(runAsUser=10001), "runAsUser is set"),
    ("twin", lambda b: pod(b)["securityContext"].update(fsGroup=0), "fsGroup is set"),
    ("emulator", lambda b: pod(b)["containers"][0]["resources"]["limits"].update(cpu="1"), "requests and limits"),
    ("emulator", lambda b: pod(b)["containers"][0].pop("resources"), "requests and limits"),
    ("oai-gnb", lambda b: pod(b)["initContainers"][0].pop("resources"), "requests and limits"),
    ("oai-gnb", lambda b: pod(b)["initContainers"][0]["securityContext"].pop("runAsNonRoot"), "runAsNonRoot is None"),
    ("oai-gnb", lambda b: pod(b)["initContainers"][0]["securityContext"].pop("runAsUser"), "inherit the user"),
    ("oai-gnb", lambda b: pod(b)["initContainers"][0].pop("restartPolicy"), "no native sidecar"),
    ("oai-gnb", lambda b: pod(b)["initContainers"][0].update(readinessProbe={}), "has a readinessProbe"),
    ("oai-gnb", lambda b: pod(b)["containers"][0]["volumeMounts"].clear(), "gnb does not see /tmp/dapps"),
    ("oai-gnb", lambda b: volume(b, "e3").update(emptyDir={}), "/tmp/dapps is not in memory"),
    ("oai-gnb", lambda b: volume(b, "shm").update(emptyDir={}), "/dev/shm is not in memory"),
    ("oai-gnb", lambda b: pod(b)["initContainers"][0]["volumeMounts"].pop(), "twinlink-exporter does not see /dev/shm"),
    ("router", lambda b: pod(b)["containers"][0]["securityContext"]["capabilities"].update(drop=[]), "capabilities is"),
    ("twin", lambda b: pod(b)["containers"][0].pop("livenessProbe"), "no livenessProbe"),
    ("twin", lambda b: pod(b)["containers"][0]["ports"][0].update(name="web"), "asks at port http"),
    ("twin", lambda b: pod(b).update(enableServiceLinks=True), "enableServiceLinks"),
    ("twin", lambda b: pod(b).pop("automountServiceAccountToken"), "automountServiceAccountToken"),
    ("twin", lambda b: pod(b)["containers"][0].update(image="twinlink-replay:latest"), "has no tag that stays"),
    ("twin", lambda b: pod(b)["containers"][0].update(image="host:5000/twinlink-replay"), "has no tag that stays"),
    ("twin", lambda b: pod(b)["containers"][0].update(image="twinlink-replay:0.0.1"), "is not of version"),
    ("twin", lambda b: first(b, "Deployment")["spec"].update(replicas=2), "not one replica"),
    ("twin", lambda b: first(b, "Deployment")["spec"].pop("strategy"), "not one replica"),
    ("twin", lambda b: first(b, "Service")["metadata"].pop("labels"), "part-of is not twinlink"),
    ("twin", lambda b: first(b, "Service")["metadata"]["labels"].update({"app.kubernetes.io/version": "2"}), "is 2"),
    ("twin", lambda b: first(b, "Service")["spec"]["selector"].update(a="b"), "selects no pod"),
    ("twin", lambda b: first(b, "Service")["spec"]["ports"][0].update(targetPort="web"), "no pod has a port web"),
    ("twin", lambda b: first(b, "ConfigMap")["metadata"].update(name="other"), "is not generated here"),
    ("twin", lambda b: first(b, "ServiceAccount")["metadata"].update(name="other"), "is not here"),
    ("openshift", lambda b: first(b, "BuildConfig")["spec"]["output"]["to"].update(name="x:1"), "no build rolls out"),
    ("openshift", lambda b: first(b, "Deployment")["metadata"].pop("annotations"), "no build rolls out"),
    (
        "openshift",
        lambda b: first(b, "Deployment")["spec"]["template"]["metadata"].pop("annotations"),
        "required-scc is not restricted-v2",
    ),
]


@pytest.mark.parametrize(("overlay", "spoil", "complaint"), MISTAKES)
def test_a_mistake_is_found(built: Built, overlay: str, spoil: Callable[[list[Document]], Any], complaint: str) -> None:
    spoilt = deepcopy(built(overlay))
    spoil(spoilt)
    assert any(complaint in found for found in rules.complaints(overlay, spoilt)), rules.complaints(overlay, spoilt)


def test_overlays_share_no_object(built: Built) -> None:
    """They can be applied to one namespace, and removed, in any order."""
    named = [(document["kind"], document["metadata"]["name"]) for overlay in STAND_ALONE for document in built(overlay)]
    assert len(named) == len(set(named))


def test_a_gnb_gets_nothing_but_the_exporter(built: Built) -> None:
    """The account and the network policies of the base are for pods of twinlink alone."""
    assert sorted(document["kind"] for document in built("oai-gnb")) == ["ConfigMap", "Deployment", "ServiceAccount"]
    assert first(built("oai-gnb"), "ServiceAccount")["metadata"]["name"] == "oai-gnb-sa"


def post_render(kubectl: str, manifests: str) -> "subprocess.CompletedProcess[str]":
    script = K8S / "overlays" / "oai-gnb" / "post-render.sh"
    done = subprocess.run(
        [str(script)], input=manifests, capture_output=True, text=True, check=False, timeout=60,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "KUBECTL": kubectl},
    )  # fmt: skip
    assert list(K8S.glob("overlays/post-render.*")) == []
    return done


def test_post_render_adds_the_exporter_to_what_a_chart_made(kubectl: str, built: Built) -> None:
    chart = (K8S / "overlays" / "oai-gnb" / "gnb.yaml").read_text()
    done = post_render(kubectl, chart.replace("oai-gnb", "ran-1-gnb"))
    assert done.returncode == 0, done.stderr
    expected = json.loads(json.dumps(built("oai-gnb")).replace("oai-gnb", "ran-1-gnb"))
    key: Callable[[Document], str] = lambda document: document["kind"]  # noqa: E731
    assert sorted(documents(done.stdout), key=key) == sorted(expected, key=key)


def test_post_render_says_what_it_missed(kubectl: str) -> None:
    chart = (K8S / "overlays" / "oai-gnb" / "gnb.yaml").read_text()
    for manifests, said in (("", "no Deployment on standard input"), (chart.replace("gnb", "du"), 'has "gnb" in its')):
        done = post_render(kubectl, manifests)
        assert done.returncode == 2
        assert done.stdout == ""
        assert said in done.stderr


def test_what_the_twin_can_be_reached_by(kubectl: str, tmp_path: Any) -> None:
    """ZeroMQ takes the port of `connect` and the next: the two NodePorts are consecutive."""
    patch = (K8S / "overlays" / "twin" / "nodeport.yaml").read_text()
    service = (K8S / "overlays" / "twin" / "service.yaml").read_text()
    (tmp_path / "patch.yaml").write_text(patch)
    (tmp_path / "service.yaml").write_text(service)
    (tmp_path / "kustomization.yaml").write_text("resources: [service.yaml]\npatches: [{path: patch.yaml}]\n")
    (changed,) = build(kubectl, tmp_path)
    ports = [(port["name"], port["port"], port["nodePort"]) for port in changed["spec"]["ports"]]
    assert ports == [("link", 7447, 30447), ("link-2", 7448, 30448)]
