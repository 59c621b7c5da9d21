"""The programs behind `make k8s-check`: found in the cache or on PATH, else built from Go modules or fetched by apt.

Building takes a Go toolchain and, on two cores, 5 to 30 minutes, once; 3 GB of Go's own caches can go afterwards
(``go clean -cache -modcache``).  What stays in :func:`tests.k8s.cache.cache_folder` is 200 MB.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.k8s.cache import cache_folder

KUBERNETES = "v1.34.1"
STAGING = "v0.34.1"  # the same release, as k8s.io/api and its siblings number it
OPENSHIFT_API = "v3.9.0+incompatible"  # of 2018, the newest with a version; it has no go.mod
PROMETHEUS_OPERATOR = "v0.85.0"
CRDS = ("podmonitors", "prometheusrules")
OLDEST_GO = (1, 24)

_DECODER = Path(__file__).with_name("decode.go")


class ToolError(Exception):
    """A program is missing and cannot be made here; the text says what to do."""


@dataclass(frozen=True)
class Tools:
    """Paths of the programs, and of the custom resource definitions that the cluster gets."""

    etcd: Path
    apiserver: Path
    kubectl: Path
    decoder: Path
    crds: list[Path]


def find_or_build() -> Tools:
    """Every program, from the cache where it has been here before; says what takes long."""
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with _alone(cache):
        _drop_other_versions(cache)
        etcd = _on_path("etcd") or _etcd(cache)
        apiserver, kubectl = (_kubernetes(cache, name) for name in ("kube-apiserver", "kubectl"))
        return Tools(etcd, apiserver, kubectl, _decoder(cache), _crds(cache))


def _drop_other_versions(cache: Path) -> None:
    stamp = cache / "versions"
    versions = f"{KUBERNETES} {STAGING} {OPENSHIFT_API} {PROMETHEUS_OPERATOR}\n"
    if not stamp.exists() or stamp.read_text() != versions:
        for name in ("bin", "crds"):
            shutil.rmtree(cache / name, ignore_errors=True)
        stamp.write_text(versions)
    (cache / "bin").mkdir(exist_ok=True)


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    with (cache / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"waiting for another run that fills {cache}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    print(f"k8s-check: {text}", file=sys.stderr, flush=True)


def _on_path(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None


def _run(command: list[str], cwd: Path, **environment: str) -> str:
    try:
        done = subprocess.run(
            command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise ToolError(f"{command[0]} is missing, which `{' '.join(command)}` needs") from None
    if done.returncode:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-15:])
        raise ToolError(f"`{' '.join(command)}` in {cwd} failed with {done.returncode}:\n{last}")
    return done.stdout


def _etcd(cache: Path) -> Path:
    """Unpacked, not installed: the package would start a service."""
    etcd = cache / "etcd" / "usr" / "bin" / "etcd"
    if not etcd.exists():
        if not _on_path("apt-get"):
            raise ToolError("etcd is missing and there is no apt-get to fetch it: put etcd on PATH")
        _say("fetching etcd (Debian's etcd-server)")
        package = cache / "etcd"
        package.mkdir(exist_ok=True)
        try:
            _run(["apt-get", "download", "-qq", "etcd-server"], package)
        except ToolError as failure:
            raise ToolError(f"{failure}\nIs the package list there (`apt-get update`)? Else put etcd on PATH") from None
        _run(["dpkg-deb", "--extract", str(next(package.glob("*.deb"))), "."], package)
    return etcd


def _go() -> str:
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if not go:
        raise ToolError("a Go toolchain is needed to build kube-apiserver, and `go` is not on PATH")
    found = re.match(r"go(\d+)\.(\d+)", _run([go, "env", "GOVERSION"], Path.cwd()))
    if not found or tuple(map(int, found.groups())) < OLDEST_GO:
        raise ToolError(f"{go} is {found and found[0]}; Kubernetes {KUBERNETES} needs Go {OLDEST_GO[0]}.{OLDEST_GO[1]}")
    return go


def _download(module: str, version: str) -> dict[str, str]:
    """Where Go keeps a module: its ``Dir`` and ``GoMod``, among others."""
    found: dict[str, str] = json.loads(_run([_go(), "mod", "download", "-json", f"{module}@{version}"], Path("/")))
    return found


def _go_build(folder: Path, package: str, to: Path, flags: str = "") -> None:
    started = time.monotonic()
    _run([_go(), "mod", "tidy"], folder, GOFLAGS="-mod=mod")
    part = to.with_name(f"{to.name}.part")  # an interrupted build leaves nothing that looks done
    command = ["nice", "-n", "5", _go(), "build", "-trimpath", "-ldflags", f"-s -w {flags}", "-o", str(part), package]
    _run(command, folder, CGO_ENABLED="0")
    part.rename(to)
    _say(f"{to.name} is built ({time.monotonic() - started:.0f} s)")


def _kubernetes(cache: Path, name: str) -> Path:
    program = cache / "bin" / name
    if not program.exists():
        patience = "; it takes 5 to 30 minutes" if name == "kube-apiserver" else ""
        _say(f"building {name} {KUBERNETES} into {cache}, once{patience}")
        folder = cache / "kubernetes"
        folder.mkdir(exist_ok=True)
        # Kubernetes' own go.mod points at folders of its repository that the module does not have; their releases do.
        staging = re.findall(r"^\s*(k8s\.io/\S+) => \./staging/", _go_mod(), re.MULTILINE)
        (folder / "go.mod").write_text(
            f"module twinlink/kubernetes\n\ngo {OLDEST_GO[0]}.{OLDEST_GO[1]}.0\n\n"
            f"godebug default=go1.24\n\nrequire k8s.io/kubernetes {KUBERNETES}\n\n"
            + "".join(f"replace {module} => {module} {STAGING}\n" for module in staging)
        )
        (folder / "tools.go").write_text(
            "//go:build tools\n\npackage tools\n\n"
            'import (\n\t_ "k8s.io/kubernetes/cmd/kube-apiserver"\n\t_ "k8s.io/kubernetes/cmd/kubectl"\n)\n'
        )
        major, minor = KUBERNETES.removeprefix("v").split(".")[:2]
        stamps = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor}
        flags = " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamps.items())
        _go_build(folder, f"k8s.io/kubernetes/cmd/{name}", program, flags)
    return program


def _go_mod() -> str:
    return Path(_download("k8s.io/kubernetes", KUBERNETES)["GoMod"]).read_text()


def _decoder(cache: Path) -> Path:
    program = cache / "bin" / "decode-openshift"
    folder = cache / "openshift"
    folder.mkdir(exist_ok=True)
    source = folder / "decode.go"
    if not program.exists() or not source.exists() or source.read_text() != _DECODER.read_text():
        _say("building the decoder of OpenShift's kinds")
        program.unlink(missing_ok=True)
        source.write_text(_DECODER.read_text())
        (folder / "go.mod").write_text(
            f"module twinlink/openshift\n\ngo {OLDEST_GO[0]}.{OLDEST_GO[1]}.0\n\nrequire (\n"
            f"\tgithub.com/openshift/api {OPENSHIFT_API}\n\tk8s.io/api {STAGING}\n\tk8s.io/apimachinery {STAGING}\n)\n"
        )
        _go_build(folder, ".", program)
    return program


def _crds(cache: Path) -> list[Path]:
    folder = cache / "crds"
    files = [folder / f"monitoring.coreos.com_{kind}.yaml" for kind in CRDS]
    if not all(file.exists() for file in files):
        module = _download("github.com/prometheus-operator/prometheus-operator", PROMETHEUS_OPERATOR)
        folder.mkdir(exist_ok=True)
        for file in files:
            shutil.copyfile(Path(module["Dir"]) / "example" / "prometheus-operator-crd" / file.name, file)
    return files
