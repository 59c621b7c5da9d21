"""The manifests of k8s/: as they stand, and as kubectl builds them."""

import functools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.k8s.cache import cache_folder

Document = dict[str, Any]

CHECKOUT = Path(__file__).parents[2]
K8S = CHECKOUT / "k8s"
STAND_ALONE = ("emulator", "twin", "openshift", "router")
OVERLAYS = (*STAND_ALONE, "oai-gnb")
OLDEST_KUBECTL = (1, 28)  # its kustomize has everything that these files use


class BuildError(Exception):
    """kubectl could not build an overlay; the text is its own."""


def documents(text: str) -> list[Document]:
    return [document for document in yaml.safe_load_all(text) if document]


def source_files() -> list[Path]:
    """Every YAML file of k8s/, kustomizations too, but for those that post-render.sh makes while it runs."""
    return sorted(path for path in K8S.rglob("*.yaml") if not path.parent.name.startswith("post-render."))


@functools.cache
def find_kubectl() -> str | None:
    """A kubectl that is new enough: $KUBECTL, the one that `make k8s-check` built, or the one on PATH."""
    candidates = [os.environ.get("KUBECTL"), str(cache_folder() / "bin" / "kubectl"), shutil.which("kubectl")]
    return next((path for path in candidates if path and _kubectl_version(path) >= OLDEST_KUBECTL), None)


def _kubectl_version(path: str) -> tuple[int, ...]:
    try:
        done = subprocess.run(
            [path, "version", "--client", "--output=json"], capture_output=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return (0,)
    found = re.match(r"v(\d+)\.(\d+)", json.loads(done.stdout)["clientVersion"]["gitVersion"])
    return tuple(map(int, found.groups())) if found else (0,)


def build(kubectl: str, folder: Path) -> list[Document]:
    """What `kubectl kustomize` makes of a folder."""
    done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode or done.stderr:  # a warning is a mistake, too: kustomize warns of what it is about to drop
        raise BuildError(f"kubectl kustomize {folder}: {done.stderr.strip()}")
    return documents(done.stdout)


def pod_templates(of: list[Document]) -> Iterator[tuple[str, Document]]:
    """The name and the pod template of every Deployment."""
    for document in of:
        if document["kind"] == "Deployment":
            yield document["metadata"]["name"], document["spec"]["template"]


def containers(spec: Document) -> list[Document]:
    """Every container of a pod, init containers first."""
    return [*spec.get("initContainers", []), *spec.get("containers", [])]
