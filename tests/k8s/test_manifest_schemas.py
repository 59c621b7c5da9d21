"""Every object of k8s/ keeps Kubernetes' schema strictly: no unknown field, no wrong type."""

import warnings
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests.k8s.conftest import Built
from tests.k8s.manifests import K8S, OVERLAYS, Document, documents, source_files

KUBERNETES = "1.34"
KUSTOMIZE = ("Kustomization", "Component")
# No schemas are at hand for these; `make k8s-check` holds all but the last to the definitions themselves.
OTHERS = ("monitoring.coreos.com/v1", "image.openshift.io/v1", "build.openshift.io/v1", "cert-manager.io/v1")


def faults(of: list[Document]) -> list[str]:
    found = []
    for document in of:
        if document["apiVersion"] in OTHERS:
            continue
        try:
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
        except kubernetes_validate.ValidationError as error:
            path = ".".join(map(str, error.path))
            found.append(f"{document['kind']} {document['metadata']['name']}: {path}: {error.message}")
    return found


def listed(kustomization: Path, key: str) -> list[Path]:
    return [kustomization.parent / name for name in yaml.safe_load(kustomization.read_text()).get(key, [])]


def resources() -> list[Path]:
    kustomizations = [path for path in source_files() if path.name == "kustomization.yaml"]
    return sorted(path for each in kustomizations for path in listed(each, "resources") if path.suffix == ".yaml")


@pytest.mark.parametrize("path", resources(), ids=lambda path: str(path.relative_to(K8S)))
def test_a_source_file_keeps_the_schema(path: Path) -> None:
    assert faults(documents(path.read_text())) == []


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_an_overlay_is_built_to_keeps_the_schema(built: Built, overlay: str) -> None:
    assert faults(built(overlay)) == []


def test_a_misspelt_field_is_found() -> None:
    (deployment,) = documents((K8S / "overlays" / "twin" / "deployment.yaml").read_text())
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    container["readinesProbe"] = container.pop("readinessProbe")
    container["ports"][0]["containerPort"] = "9464"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (fault,) = faults([deployment])
    assert "readinesProbe" in fault or "9464" in fault


def test_every_file_is_named_in_a_kustomization() -> None:
    """Also what a user may switch on: a file that no kustomization names is a left-over, or forgotten."""
    for path in source_files():
        if path.name != "kustomization.yaml":
            assert path.name in (path.parent / "kustomization.yaml").read_text(), path


def test_kustomizations_name_only_files_that_are_there() -> None:
    for path in source_files():
        if path.name == "kustomization.yaml":
            content = yaml.safe_load(path.read_text())
            assert content["kind"] in KUSTOMIZE
            named = [*content.get("resources", []), *content.get("components", [])]
            named += [patch["path"] for patch in content.get("patches", []) if "path" in patch]
            named += [file for made in content.get("configMapGenerator", []) for file in made["files"]]
            assert [name for name in named if not (path.parent / name).exists()] == [], path
