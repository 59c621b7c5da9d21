"""The component that gives exporter and twin their identities."""

import os
from pathlib import Path

import pytest

from tests.k8s.manifests import K8S, build, containers, pod_templates

FOLDER = "/etc/twinlink-identity"


@pytest.mark.parametrize(
    ("overlay", "program"), [("emulator", "exporter"), ("oai-gnb", "exporter"), ("twin", "replay")]
)
def test_a_program_gets_its_identity(overlay: str, program: str, kubectl: str, tmp_path: Path) -> None:
    overlays, component = (os.path.relpath(K8S / of, tmp_path) for of in (f"overlays/{overlay}", "components/security"))
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{overlays}]\ncomponents: [{component}]\n")
    ((_, template),) = pod_templates(build(kubectl, tmp_path))
    spec = template["spec"]
    given = {
        container["name"]: {one["name"]: one["value"] for one in container.get("env", [])}
        for container in containers(spec)
    }
    assert [name for name, env in given.items() if "TWINLINK_IDENTITY" in env] == [f"twinlink-{program}"]
    own = next(one for one in containers(spec) if one["name"] == f"twinlink-{program}")
    assert own["image"].startswith(f"twinlink-{program}")  # it was merged, not added
    env = given[own["name"]]
    assert (env["TWINLINK_IDENTITY"], env["TWINLINK_REQUIRE_IDENTITY"]) == (FOLDER, "true")
    assert env.get("TWINLINK_INSECURE_CONTROL", "false") == "false"
    (mount,) = [one for one in own["volumeMounts"] if one["mountPath"] == FOLDER]
    (volume,) = [one for one in spec["volumes"] if one["name"] == mount["name"]]
    assert volume["secret"] == {"secretName": f"twinlink-{program}-identity", "defaultMode": 0o440}
