"""The component for a gNB with a radio: what it asks of the node, and that it keeps the rules of k8s/."""

import shutil
from pathlib import Path

import pytest

from tests.k8s import rules
from tests.k8s.manifests import K8S, Document, build, containers, pod_templates
from tests.k8s.test_manifest_schemas import faults
from tests.k8s.test_shipped_configuration import TOML, check

COMPONENT = "# - ../../components/over-the-air\n"
WAYS = ("sriov.yaml", "host-network.yaml")


@pytest.fixture(params=WAYS)
def radio(request: pytest.FixtureRequest, kubectl: str, tmp_path: Path) -> list[Document]:
    """The gNB's overlay with the component switched on, as the page tells."""
    shutil.copytree(K8S, tmp_path, dirs_exist_ok=True)
    overlay = tmp_path / "overlays" / "oai-gnb" / "kustomization.yaml"
    text = overlay.read_text()
    assert COMPONENT in text
    overlay.write_text(text.replace(COMPONENT, COMPONENT.removeprefix("# ")))
    component = tmp_path / "components" / "over-the-air" / "kustomization.yaml"
    text, line = component.read_text(), " # or ".join(WAYS)
    assert line in text
    component.write_text(text.replace(line, request.param))
    return build(kubectl, overlay.parent)


def test_a_gnb_with_a_radio_gets_what_it_needs(radio: list[Document]) -> None:
    assert rules.complaints("oai-gnb", radio) == []
    assert faults(radio) == []
    ((_, template),) = pod_templates(radio)
    spec = template["spec"]
    exporter, gnb = containers(spec)
    assert (exporter["name"], gnb["name"]) == ("twinlink-exporter", "gnb")
    assert spec["nodeSelector"] == {"twinlink/radio": "true"}
    for container in (exporter, gnb):
        assert container["resources"]["limits"]["cpu"].isdigit(), "a part of a core is not the container's alone"
    assert gnb["resources"]["limits"]["hugepages-1Gi"]
    assert {"name": "hugepages", "mountPath": "/dev/hugepages"} in gnb["volumeMounts"]
    assert {"name": "hugepages", "emptyDir": {"medium": "HugePages-1Gi"}} in spec["volumes"]
    assert "--rfsim" not in str(gnb.get("env"))
    asked = check(exporter | {"image": "twinlink-exporter"}, TOML)
    assert f"beta {1 / 128:g}" in asked.stdout, asked.stderr

    by_sriov = "k8s.v1.cni.cncf.io/networks" in template["metadata"].get("annotations", {})
    assert by_sriov == ("openshift.io/fronthaul" in gnb["resources"]["requests"]) != spec.get("hostNetwork", False)
