"""The component that gives exporter and twin their identities."""

import os
import tomllib
from pathlib import Path

import pytest

from tests.k8s.manifests import K8S, build, containers, documents, pod_templates

FOLDER = "/etc/twinlink-identity"


@pytest.mark.parametrize("certificates", ["own", "cert-manager"])
@pytest.mark.parametrize(
    ("overlay", "program"), [("emulator", "exporter"), ("oai-gnb", "exporter"), ("twin", "replay")]
)
def test_a_program_gets_its_identity(
    overlay: str, program: str, certificates: str, kubectl: str, tmp_path: Path
) -> None:
    security = "components/security" if certificates == "own" else "components/security-cert-manager"
    overlays, component = (os.path.relpath(K8S / of, tmp_path) for of in (f"overlays/{overlay}", security))
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
    if certificates == "own":
        assert volume["secret"] == {"secretName": f"twinlink-{program}-identity", "defaultMode": 0o440}
        return
    assert "secret" not in volume
    projected = volume["projected"]
    assert projected["defaultMode"] == 0o440
    found = {one["secret"]["name"]: [item["path"] for item in one["secret"]["items"]] for one in projected["sources"]}
    assert found == {
        f"twinlink-{program}-certificate": ["tls.crt", "tls.key", "ca.crt"],
        f"twinlink-{program}-identity": ["secret", "trusted", "revoked"],
    }


def test_the_certificates_are_those_of_the_nodes() -> None:
    """cert-manager issues them in the names that twinlink.toml has, and twinlink proves names by the common name."""
    names = tomllib.loads((K8S / "base" / "twinlink.toml").read_text())
    issued = documents((K8S / "components" / "authority" / "certificates.yaml").read_text())
    assert {one["spec"]["secretName"]: one["spec"]["commonName"] for one in issued} == {
        "twinlink-exporter-certificate": names["exporter"]["node"],
        "twinlink-replay-certificate": names["replay"]["node"],
    }
    assert all({"client auth", "server auth"} <= set(one["spec"]["usages"]) for one in issued)
