"""A kube-apiserver with its etcd, private and for a short while: no kubelet, no controllers, nothing runs in it.

It decides about what is sent to it as any cluster's does: schemas, defaults, admission (Pod Security and policies in
CEL), and the QoS class of a pod.
"""

import json
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.k8s.tools import Tools

START_S = 300  # 3 to 13 s on two idle cores
STOP_S = 10


class ClusterError(Exception):
    """The private cluster did not start, or refused what it must take; the text holds its last words."""


class Cluster:
    """kubectl's view of it."""

    def __init__(self, tools: Tools, port: int, token: str, folder: Path) -> None:
        self._command = [
            str(tools.kubectl),
            f"--server=https://127.0.0.1:{port}",
            "--insecure-skip-tls-verify",  # its certificate is its own, and the address the loopback's
            f"--token={token}",
            "--kubeconfig=/dev/null",
            f"--cache-dir={folder / 'kubectl'}",
        ]

    def kubectl(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl with this text as standard input; a refusal is the caller's affair."""
        return subprocess.run(
            [*self._command, *arguments], input=text, capture_output=True, text=True, check=False, timeout=120
        )

    def must(self, *arguments: str, text: str = "") -> str:
        """Run kubectl for what cannot be refused; return its standard output."""
        done = self.kubectl(*arguments, text=text)
        if done.returncode:
            raise ClusterError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def create(self, namespace: str, objects: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
        """Have the server judge new objects, warnings counting as refusals; nothing is kept."""
        return self.kubectl(
            "create", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "--output=json",
            f"--namespace={namespace}", "--filename=-",
            text="\n---\n".join(json.dumps(document) for document in objects),
        )  # fmt: skip


@contextmanager
def running(tools: Tools) -> Iterator[Cluster]:
    """A cluster until the end of the block; all that was started is ended, however the block ends."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="twinlink-k8s-")))
        etcd = stack.enter_context(_serving(lambda ports: _etcd(tools, folder, ports), "etcd", folder, 2))
        token = secrets.token_hex(16)
        (folder / "tokens").write_text(f"{token},admin,admin,system:masters\n")
        key = folder / "key.pem"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        server = stack.enter_context(
            _serving(lambda ports: _apiserver(tools, folder, etcd[0], ports[0]), "kube-apiserver", folder, 1)
        )
        cluster = Cluster(tools, server[0], token, folder)
        deadline = time.monotonic() + START_S
        while cluster.kubectl("get", "--raw=/readyz").returncode:
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"kube-apiserver was not ready after {START_S} s:\n{_tail(folder, 'kube-apiserver')}"
                )
            time.sleep(0.2)
        yield cluster


def _etcd(tools: Tools, folder: Path, ports: list[int]) -> list[str]:
    client, peer = (f"http://127.0.0.1:{port}" for port in ports)
    return [
        str(tools.etcd), f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn",
        f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
    ]  # fmt: skip


def _apiserver(tools: Tools, folder: Path, etcd: int, port: int) -> list[str]:
    key = folder / "key.pem"
    return [
        str(tools.apiserver), f"--etcd-servers=http://127.0.0.1:{etcd}", f"--cert-dir={folder / 'certificates'}",
        f"--secure-port={port}", "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
        "--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none",
        "--service-account-issuer=https://twinlink.invalid",
        f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
        f"--token-auth-file={folder / 'tokens'}", "--authorization-mode=RBAC",
        "--allow-privileged=true",  # else every privileged container is refused before Pod Security sees it
        "--disable-admission-plugins=ServiceAccount",  # no controller makes the accounts that it asks for
    ]  # fmt: skip


@contextmanager
def _serving(command: Any, name: str, folder: Path, ports: int) -> Iterator[list[int]]:
    """Start a server and wait until it takes connections; another process may take a free port first, so try again."""
    for _ in range(5):
        chosen = _free_ports(ports)
        with (folder / f"{name}.log").open("w") as log:
            # A session of its own: Ctrl-C is for this program, which ends the server when it is done with it.
            process = subprocess.Popen(
                command(chosen), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            if _listens(process, chosen[0]):
                yield chosen
                return
            if "address already in use" not in _tail(folder, name):
                break
        finally:
            _end(process)
    raise ClusterError(f"{name} did not start:\n{_tail(folder, name)}")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _listens(process: "subprocess.Popen[bytes]", port: int) -> bool:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return True
        except OSError:
            time.sleep(0.1)
    return False


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(folder: Path, name: str) -> str:
    return "\n".join((folder / f"{name}.log").read_text(errors="replace").splitlines()[-10:])
