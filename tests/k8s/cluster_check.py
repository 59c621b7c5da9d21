"""Holds k8s/ to a real kube-apiserver: `make k8s-check`.  One line an overlay; exit code 0 if all is as it should be.

``restricted`` is enforced as a cluster does, and OpenShift's SCC restricted-v2 by a policy that stands in for it
(``stand_in.yaml``).  Nothing runs: there is no kubelet.  Exit code 1: something was refused, or was not and should
have been; 2: the programs for the check could not be had.
"""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from tests.k8s.apiserver import Cluster, ClusterError, running
from tests.k8s.manifests import K8S, STAND_ALONE, BuildError, Document, build, pod_templates
from tests.k8s.tools import ToolError, Tools, find_or_build

RESTRICTED = "restricted"  # Pod Security `restricted` and the stand-in: OpenShift
PLAIN = "plain"  # Pod Security `restricted` alone: any other cluster
PRIVILEGED = "privileged"
NAMESPACES = {RESTRICTED: ("restricted", "restricted-v2"), PLAIN: ("restricted", ""), PRIVILEGED: ("privileged", "")}

# What a user may switch on in an overlay's kustomization.yaml: overlay, the lines added, where it is to be accepted.
VARIANTS = (
    ("twin", "patches:\n- path: loadbalancer.yaml\n", RESTRICTED),
    ("twin", "patches:\n- path: nodeport.yaml\n", RESTRICTED),
    ("router", "patches:\n- path: user.yaml\n", PLAIN),
    *(
        (overlay, f"components:\n- ../../components/{component}\n", RESTRICTED)
        for overlay in ("twin", "emulator")
        for component in ("security", "security-cert-manager")
    ),
    ("emulator", "components:\n- ../../components/insecure-control\n", RESTRICTED),
    ("oai-gnb", "- ../../components/over-the-air\n", PRIVILEGED),
)
OPENSHIFT_KINDS = re.compile(r"\.openshift\.io/")

# Why `restricted` refuses the gNB's pod, container by container: each reason is the gNB's.
GNB_REASONS = {
    'allowPrivilegeEscalation != false (container "gnb" must set securityContext.allowPrivilegeEscalation=false)',
    'unrestricted capabilities (container "gnb" must set securityContext.capabilities.drop=["ALL"])',
    'runAsNonRoot != true (pod or container "gnb" must set securityContext.runAsNonRoot=true)',
    "runAsUser=0 (pod must not set runAsUser=0)",
    'seccompProfile (pod or container "gnb" must set securityContext.seccompProfile.type to "RuntimeDefault" or'
    ' "Localhost")',
}


class Finding(Exception):
    """The server took what it should refuse, or the other way round."""


def main() -> int:
    """Run every check; print what holds, and stop at the first thing that does not."""
    signal.signal(signal.SIGTERM, _as_interrupt)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell started this in the background
    try:
        tools = find_or_build()
        with running(tools) as cluster:
            prepare(cluster, tools)
            for line in checks(cluster, tools):
                print(line, flush=True)
    except (Finding, ClusterError, BuildError) as failure:
        print(f"k8s-check: FAILED: {failure}", file=sys.stderr)
        return 1
    except ToolError as failure:
        print(f"k8s-check: {failure}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("k8s-check: interrupted; what it started is ended", file=sys.stderr)
        return 130
    print("k8s-check: all as it should be")
    return 0


def _as_interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def checks(cluster: Cluster, tools: Tools) -> Iterator[str]:
    """Everything that is checked, a line each."""
    kubectl = str(tools.kubectl)
    yield refusals(cluster)
    yield decoding(tools)
    for overlay in STAND_ALONE:
        yield accepted(overlay, cluster, tools, RESTRICTED, build(kubectl, K8S / "overlays" / overlay))
    yield accepted("monitoring", cluster, tools, RESTRICTED, build(kubectl, K8S / "components" / "monitoring"))
    for overlay, added, namespace in VARIANTS:
        with changed(overlay, added) as folder:
            yield accepted(f"{overlay} with {added.split()[-1]}", cluster, tools, namespace, build(kubectl, folder))
    yield from beside_a_gnb(cluster, build(kubectl, K8S / "overlays" / "oai-gnb"))


def prepare(cluster: Cluster, tools: Tools) -> None:
    """Namespaces, the stand-in, and the definitions of the kinds that are not Kubernetes' own."""
    for name, (level, stand_in) in NAMESPACES.items():
        labels = {f"pod-security.kubernetes.io/{mode}": level for mode in ("enforce", "warn", "audit")}
        labels |= {"stand-in": stand_in} if stand_in else {}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        cluster.must("create", "--filename=-", text=json.dumps(namespace))
    cluster.must("create", f"--filename={Path(__file__).with_name('stand_in.yaml')}")
    for crd in tools.crds:
        cluster.must("create", f"--filename={crd}")
    cluster.must(
        "wait", "--for=condition=Established", "--timeout=60s",
        *(f"crd/{crd.stem.split('_')[1]}.monitoring.coreos.com" for crd in tools.crds),
    )  # fmt: skip
    deadline = time.monotonic() + 60  # the server reads a new policy when it comes to it
    while not cluster.create(RESTRICTED, [a_pod(user=1000)]).returncode:
        if time.monotonic() > deadline:
            raise ClusterError("the stand-in for restricted-v2 has no effect after 60 s")
        time.sleep(0.2)


def a_pod(*, user: int | None = None, group: int | None = None, **spec: Any) -> Document:
    """A pod that keeps every rule but for what is asked for."""
    container = {
        "name": "one",
        "image": "example:1",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    context: Document = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    context |= {} if user is None else {"runAsUser": user}
    context |= {} if group is None else {"fsGroup": group}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one"},
        "spec": {"containers": [container], "securityContext": context} | spec,
    }


def a_deployment(pod: Document, **fields: Any) -> Document:
    labels = {"app": "one"}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod["spec"]}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "one"}, "spec": spec | fields}


def refusals(cluster: Cluster) -> str:
    """The server refuses what breaks a rule: without this, its acceptance would say nothing."""
    volumes = [{"name": "host", "hostPath": {"path": "/tmp/dapps"}}]
    violating = [
        (a_pod(hostNetwork=True), "host namespaces (hostNetwork=true)"),
        (a_pod(volumes=volumes), 'restricted volume types (volume "host" uses restricted volume type "hostPath")'),
        (a_pod(securityContext={}), "runAsNonRoot != true"),
        (a_pod(user=0), "runAsUser=0"),
        (a_pod(user=1000), "runAsUser is the project's to choose"),
        (a_pod(group=1000), "fsGroup is the project's to choose"),
        (a_deployment(a_pod(user=1000)), "runAsUser is the project's to choose"),
        (a_deployment(a_pod(hostNetwork=True)), "would violate PodSecurity"),
        (a_deployment(a_pod(), replica=1), 'unknown field "spec.replica"'),
    ]
    for document, reason in violating:
        done = cluster.create(RESTRICTED, [document])
        if not done.returncode or reason not in done.stderr:
            raise Finding(f"this should have been refused for {reason!r}: {document}\n{done.stdout}{done.stderr}")
    done = cluster.create(RESTRICTED, [a_pod(), a_deployment(a_pod())])
    if done.returncode:
        raise Finding(f"a pod that keeps every rule was refused: {done.stderr}")
    return f"refused, as they should be: {len(violating)} pods and Deployments that break a rule"


def decoding(tools: Tools) -> str:
    """The decoder of OpenShift's kinds refuses a misspelt field."""
    stream = {"apiVersion": "image.openshift.io/v1", "kind": "ImageStream", "metadata": {"name": "one"}}
    done = _decode(tools, [stream | {"spec": {"lookUpPolicy": {"local": True}}}])
    if not done.returncode or "lookUpPolicy" not in done.stderr:
        raise Finding(f"a misspelt field of an ImageStream was not found: {done.stdout}{done.stderr}")
    return "refused, as it should be: an ImageStream with a misspelt field"


def _decode(tools: Tools, objects: list[Document]) -> "subprocess.CompletedProcess[str]":
    text = "\n---\n".join(json.dumps(document) for document in objects)
    return subprocess.run([str(tools.decoder)], input=text, capture_output=True, text=True, check=False, timeout=60)


def accepted(what: str, cluster: Cluster, tools: Tools, namespace: str, built: list[Document]) -> str:
    """Every object of an overlay, and a pod from each of its templates."""
    openshift = [document for document in built if OPENSHIFT_KINDS.search(document["apiVersion"])]
    others = [document for document in built if document not in openshift]
    done = cluster.create(namespace, others)
    if done.returncode:
        raise Finding(f"{what}: refused in namespace {namespace}: {done.stderr.strip()}")
    classes = []
    for name, template in pod_templates(built):
        done = cluster.create(namespace, [pod_from(name, template)])
        if done.returncode:
            raise Finding(f"{what}: pod {name} is refused in namespace {namespace}: {done.stderr.strip()}")
        quality = qos_class(done.stdout)
        if quality != "Guaranteed":
            raise Finding(f"{what}: pod {name} is {quality}, and would lose its exclusive cores")
        classes.append(f"pod {name} {quality}")
    line = f"{what}: {len(others)} objects accepted" + (f" ({', '.join(classes)})" if classes else "")
    if openshift:
        done = _decode(tools, openshift)
        if done.returncode:
            raise Finding(f"{what}: not of OpenShift's types: {done.stderr.strip()}")
        line += f", {len(openshift)} of OpenShift's kinds decoded"
    return line


def pod_from(name: str, template: Document) -> Document:
    """What the Deployment's controller would create: Pod Security refuses pods, a Deployment only brings a warning."""
    return {"apiVersion": "v1", "kind": "Pod"} | template | {"metadata": template["metadata"] | {"name": name}}


def qos_class(output: str) -> str:
    return str(json.loads(output)["status"]["qosClass"])


@contextmanager
def changed(overlay: str, added: str) -> Iterator[Path]:
    """A copy of k8s/ in which lines of an overlay's kustomization.yaml were added, or uncommented, as it suggests."""
    with TemporaryDirectory(prefix="twinlink-k8s-") as folder:
        shutil.copytree(K8S, folder, dirs_exist_ok=True)
        copy = Path(folder) / "overlays" / overlay
        kustomization = copy / "kustomization.yaml"
        text, comment = kustomization.read_text(), f"# {added}"
        kustomization.write_text(text.replace(comment, added) if comment in text else text + added)
        yield copy


def beside_a_gnb(cluster: Cluster, built: list[Document]) -> Iterator[str]:
    """The gNB's pod is refused by `restricted` for the gNB's own sake, and stays Guaranteed with the exporter."""
    ((name, template),) = pod_templates(built)
    pod = pod_from(name, template)
    done = cluster.create(PLAIN, [pod])
    found = re.search(r'violates PodSecurity "restricted:latest": (.*)', done.stderr)
    # "reason (where), reason (where)": split where a bracket has closed
    reasons = set(re.split(r"(?<=\)), ", found[1])) if found else set()
    if not done.returncode or reasons != GNB_REASONS:
        raise Finding(f"the gNB's pod should be refused for\n{GNB_REASONS}, and was for\n{reasons or done.stderr}")
    yield f"oai-gnb: refused by restricted for {len(reasons)} reasons, all of them the gNB's container's own"

    done = cluster.create(PRIVILEGED, built)
    if done.returncode:
        raise Finding(f"oai-gnb: refused in namespace {PRIVILEGED}: {done.stderr.strip()}")
    done = cluster.create(PRIVILEGED, [pod])
    if done.returncode or (quality := qos_class(done.stdout)) != "Guaranteed":
        raise Finding(f"the gNB's pod in namespace {PRIVILEGED}: {done.stderr.strip() or quality}")
    (less := deepcopy(pod))["spec"]["initContainers"][0]["resources"].pop("limits")
    without = cluster.create(PRIVILEGED, [less])
    if without.returncode or qos_class(without.stdout) != "Burstable":
        raise Finding(f"without limits the exporter should make the pod Burstable: {without.stderr}{without.stdout}")
    yield f"oai-gnb: {len(built)} objects accepted where privileged pods are (pod {name} {quality})"


if __name__ == "__main__":
    sys.exit(main())
