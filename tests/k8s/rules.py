"""The rules of k8s/ that no schema holds: each is a function from built objects to what is wrong with them."""

import json
import re
from collections.abc import Callable, Iterator

import twinlink
from tests.k8s.manifests import Document, containers, pod_templates

Rule = Callable[[list[Document]], Iterator[str]]

PROGRAMS = ("twinlink-exporter", "twinlink-ran-emulator", "twinlink-replay")
RELOADED = re.compile(r"-[0-9a-z]{10}$")  # the hash that kustomize puts behind a generated ConfigMap's name


def all_pods(rule: Callable[[str, Document, Document], Iterator[str]]) -> Rule:
    """A rule about pods, from one about the name, the metadata and the spec of one."""

    def over(built: list[Document]) -> Iterator[str]:
        for name, template in pod_templates(built):
            yield from (f"{name}: {complaint}" for complaint in rule(name, template["metadata"], template["spec"]))

    return over


def ours(spec: Document) -> list[Document]:
    """The containers that this project describes: all but a gNB."""
    return [container for container in containers(spec) if container["name"] != "gnb"]


@all_pods
def chosen_by_the_cluster(_name: str, _metadata: Document, spec: Document) -> Iterator[str]:
    """Stand-alone pods leave uid and groups to the cluster: OpenShift's restricted-v2 refuses any other."""
    contexts = [
        spec.get("securityContext", {}),
        *(container.get("securityContext", {}) for container in containers(spec)),
    ]
    for field in ("runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"):
        if any(field in context for context in contexts):
            yield f"{field} is set"


@all_pods
def guaranteed(_name: str, _metadata: Document, spec: Document) -> Iterator[str]:
    """Requests equal limits, for processor and memory, in every container: else the pod is not Guaranteed."""
    for container in containers(spec):
        resources = container.get("resources", {})
        if {"cpu", "memory"} - resources.get("limits", {}).keys() or resources.get("requests") != resources["limits"]:
            yield f"{container['name']}: requests and limits differ, or leave out cpu or memory"


@all_pods
def locked(_name: str, _metadata: Document, spec: Document) -> Iterator[str]:
    """No escalation, no capabilities, a read-only root, an unprivileged user and a seccomp profile."""
    for container in ours(spec):
        own = container.get("securityContext", {})
        effective = spec.get("securityContext", {}) | own
        wanted = {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"},
        }  # fmt: skip
        for field, value in wanted.items():
            if effective.get(field) != value:
                yield f"{container['name']}: {field} is {effective.get(field)}"


@all_pods
def probed(_name: str, _metadata: Document, spec: Document) -> Iterator[str]:
    """Every container of ours has a liveness probe, and every probe asks at a port that the container names."""
    for container in ours(spec):
        if "livenessProbe" not in container:
            yield f"{container['name']}: no livenessProbe"
        ports = {port["name"] for port in container.get("ports", [])}
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = container.get(kind, {})
            asked = probe.get("httpGet") or probe.get("tcpSocket") or {}
            if probe and asked.get("port") not in ports:
                yield f"{container['name']}: {kind} asks at port {asked.get('port')}, which it does not name"


@all_pods
def settled(_name: str, _metadata: Document, spec: Document) -> Iterator[str]:
    """No token, no service links, a stated grace period; one account of its own."""
    for field, value in (("automountServiceAccountToken", False), ("enableServiceLinks", False)):
        if spec.get(field) is not value:
            yield f"{field} is not {str(value).lower()}"
    if not 5 <= spec.get("terminationGracePeriodSeconds", 30) < 30:
        yield "terminationGracePeriodSeconds is not between 5 and 30"
    if spec.get("serviceAccountName", "default") == "default":
        yield "no ServiceAccount of its own"


@all_pods
def tagged(_name: str, _metadata: Document, spec: Document) -> Iterator[str]:
    """Images have a tag, and it is not one that moves; ours is the version."""
    for container in containers(spec):
        image, _, tag = container["image"].rpartition(":")
        if not image or "/" in tag or tag == "latest":
            yield f"{container['name']}: image {container['image']} has no tag that stays"
        elif container["name"] in PROGRAMS and tag != twinlink.__version__:
            yield f"{container['name']}: image {container['image']} is not of version {twinlink.__version__}"


def never_two(built: list[Document]) -> Iterator[str]:
    """One pod, and the old one is gone before the new one comes: two exporters overwrite each other's blocks."""
    for document in built:
        if document["kind"] == "Deployment":
            spec = document["spec"]
            if spec["replicas"] != 1 or spec.get("strategy") != {"type": "Recreate"}:
                yield f"{document['metadata']['name']}: not one replica with strategy Recreate"


def labelled(built: list[Document]) -> Iterator[str]:
    """The labels that are recommended, on objects and on pods; version is the package's."""
    for document in built:
        name, labels = document["metadata"]["name"], document["metadata"].get("labels", {})
        if labels.get("app.kubernetes.io/part-of") != "twinlink":
            yield f"{document['kind']} {name}: app.kubernetes.io/part-of is not twinlink"
        version = labels.get("app.kubernetes.io/version", twinlink.__version__)
        if version != twinlink.__version__:
            yield f"{document['kind']} {name}: app.kubernetes.io/version is {version}"
    for name, template in pod_templates(built):
        for label in ("name", "part-of", "component"):
            if f"app.kubernetes.io/{label}" not in template["metadata"].get("labels", {}):
                yield f"{name}: its pods have no label app.kubernetes.io/{label}"


def joined(built: list[Document]) -> Iterator[str]:
    """What one object names, another one is: ConfigMaps, accounts, selected pods, ports."""
    names = {(document["kind"], document["metadata"]["name"]) for document in built}
    pods = [template for _, template in pod_templates(built)]
    for name, template in pod_templates(built):
        spec = template["spec"]
        volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
        for volume in volumes.values():
            config_map = volume.get("configMap", {}).get("name")
            if config_map and (("ConfigMap", config_map) not in names or not RELOADED.search(config_map)):
                yield f"{name}: ConfigMap {config_map} is not generated here"
        if ("ServiceAccount", spec["serviceAccountName"]) not in names:
            yield f"{name}: ServiceAccount {spec['serviceAccountName']} is not here"
        used = {mount["name"] for container in containers(spec) for mount in container.get("volumeMounts", [])}
        if used != volumes.keys():
            yield f"{name}: volumes {sorted(volumes)}, mounted {sorted(used)}"
    for document in built:
        if document["kind"] in ("Service", "NetworkPolicy"):
            spec = document["spec"]
            selector = spec["selector"] if document["kind"] == "Service" else spec["podSelector"]["matchLabels"]
            chosen = [pod for pod in pods if selector.items() <= pod["metadata"]["labels"].items()]
            if not chosen:
                yield f"{document['kind']} {document['metadata']['name']} selects no pod"
            ports = {
                port["name"] for pod in chosen for each in containers(pod["spec"]) for port in each.get("ports", [])
            }
            for port in spec.get("ports", []):
                if port["targetPort"] not in ports:
                    yield f"Service {document['metadata']['name']}: no pod has a port {port['targetPort']}"


def rolled_out_by_builds(built: list[Document]) -> Iterator[str]:
    """On OpenShift, every image is a tag that a build here makes, and a new one reaches each container."""
    made = {document["spec"]["output"]["to"]["name"] for document in built if document["kind"] == "BuildConfig"}
    streams = {document["metadata"]["name"] for document in built if document["kind"] == "ImageStream"}
    if streams != {tag.partition(":")[0] for tag in made}:
        yield f"ImageStreams {sorted(streams)}, builds make {sorted(made)}"
    for document in built:
        if document["kind"] != "Deployment":
            continue
        name, metadata, template = document["metadata"]["name"], document["metadata"], document["spec"]["template"]
        triggers = json.loads(metadata.get("annotations", {}).get("image.openshift.io/triggers", "[]"))
        reached = {trigger["fieldPath"]: trigger["from"]["name"] for trigger in triggers}
        for kind in ("initContainers", "containers"):
            for container in template["spec"].get(kind, []):
                path = f'spec.template.spec.{kind}[?(@.name=="{container["name"]}")].image'
                if reached.get(path) != container["image"] or container["image"] not in made:
                    yield f"{name}: no build rolls out {container['name']}"
        if template["metadata"].get("annotations", {}).get("openshift.io/required-scc") != "restricted-v2":
            yield f"{name}: required-scc is not restricted-v2"


def beside_the_gnb(built: list[Document]) -> Iterator[str]:
    """The exporter leaves the gNB's pod what it was: it starts first, and never holds it back or makes it unready."""
    for name, template in pod_templates(built):
        for container in template["spec"].get("initContainers", []):
            if container.get("restartPolicy") != "Always":
                yield f"{name}: {container['name']} is no native sidecar"
            for probe in ("readinessProbe", "startupProbe"):
                if probe in container:
                    yield f"{name}: {container['name']} has a {probe}"
            if container.get("securityContext", {}).get("runAsUser") in (None, 0):
                yield f"{name}: {container['name']} would inherit the user of the gNB's pod"
        for volume, folder in (("e3", "/tmp/dapps"), ("shm", "/dev/shm")):
            found = [one for one in template["spec"]["volumes"] if one["name"] == volume]
            if [one.get("emptyDir", {}).get("medium") for one in found] != ["Memory"]:
                yield f"{name}: {folder} is not in memory"
            for container in containers(template["spec"]):
                mounts = [(one["name"], one["mountPath"]) for one in container.get("volumeMounts", [])]
                if (volume, folder) not in mounts:
                    yield f"{name}: {container['name']} does not see {folder}"


EVERYWHERE: tuple[Rule, ...] = (guaranteed, locked, probed, tagged, never_two)
STAND_ALONE: tuple[Rule, ...] = (*EVERYWHERE, chosen_by_the_cluster, settled, labelled, joined)
RULES: dict[str, tuple[Rule, ...]] = {
    "emulator": STAND_ALONE,
    "twin": STAND_ALONE,
    "router": STAND_ALONE,
    "openshift": (*STAND_ALONE, rolled_out_by_builds),
    "oai-gnb": (*EVERYWHERE, beside_the_gnb),
}


def complaints(overlay: str, built: list[Document]) -> list[str]:
    """Everything that is wrong with what kubectl makes of an overlay."""
    return [complaint for rule in RULES[overlay] for complaint in rule(built)]
