"""The tunnel: a client that reaches a gateway only, the gateway, and an SRN behind it, each with its own sshd."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from twinlink.testing import patience, wait_until

from .srn import PATH, ROOT, TEAM, Srn, end, run, why_not

REASON = why_not()
if REASON is None and shutil.which("sshd", path=PATH) is None:
    REASON = "sshd is not installed (package openssh-server)"
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"no gateway to tunnel through here: {REASON}")

SSHD = """
HostKey /root/host_key
AuthorizedKeysFile /root/client_key.pub
StrictModes no
UsePAM no
PidFile none
PermitRootLogin prohibit-password
"""
TWINLINK = "/opt/twinlink/bin/twinlink"
EXAMPLE = ROOT / "colosseum" / "ssh_config.example"


class Path(NamedTuple):
    """The hosts from the gNB's to the SRN."""

    client: Srn
    gateway: Srn
    srn: Srn


@pytest.fixture(scope="module")
def path() -> Iterator[Path]:
    with ExitStack() as stack:
        path = Path(*(stack.enter_context(Srn(number, "")) for number in (1, 2, 3)))
        join(path.client, "10.9.0.2/24", path.gateway, "10.9.0.1/24", "vpn0")
        join(path.gateway, f"172.18.{TEAM}.1/16", path.srn, f"172.18.{TEAM}.103/16", "can0")
        key = path.client.path("/root/client_key")
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
        for node in (path.gateway, path.srn):
            serve(node, key.with_suffix(".pub").read_text())
        with path.gateway.path("/etc/hosts").open("a") as hosts:
            hosts.write(f"172.18.{TEAM}.103 team-srn003\n")
        path.client.path("/etc/hosts").write_text("10.9.0.1 gw.colosseum.net\n")
        text = EXAMPLE.read_text().replace("USERNAME", "root").replace("TEAM", "team")
        text = text.replace("~/.ssh/id_ed25519", "/root/client_key")
        path.client.path("/root/ssh_config").write_text(f"{text}\nHost *\n  StrictHostKeyChecking accept-new\n")
        yield path


def join(one: Srn, address: str, other: Srn, other_address: str, name: str) -> None:
    run("ip", "-n", one.namespace, "link", "add", name, "type", "veth", "peer", "name", name, "netns", other.namespace)
    for node, own in ((one, address), (other, other_address)):
        run("ip", "-n", node.namespace, "address", "add", own, "dev", name)
        run("ip", "-n", node.namespace, "link", "set", name, "up")


def serve(node: Srn, key: str) -> None:
    node.path("/run/sshd").mkdir()
    node.path("/root/client_key.pub").write_text(key)
    node.path("/root/sshd_config").write_text(SSHD)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(node.path("/root/host_key")))
    log = node.path("/root/sshd.log").open("w")
    node.start("/usr/sbin/sshd", "-D", "-e", "-f", "/root/sshd_config", stdout=log, stderr=log)


def tunnel(client: Srn, *arguments: str) -> subprocess.Popen[str]:
    script = str(ROOT / "colosseum" / "tunnel.sh")
    return client.start(script, *arguments, "-F", "/root/ssh_config", stderr=subprocess.PIPE)


def listens(node: Srn, port: int) -> bool:
    return node.start("bash", "-c", f": </dev/tcp/127.0.0.1/{port}", stderr=subprocess.DEVNULL).wait() == 0


@pytest.mark.parametrize(("transport", "ports"), [("zenoh", 1), ("zeromq", 2)])
def test_messages_go_through_the_gateway(path: Path, transport: str, ports: int) -> None:
    direct = path.client.start(
        "ping", "-c", "1", f"172.18.{TEAM}.103", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    assert direct.wait() != 0, "the SRN can be reached without the gateway: the test shows nothing"

    side = ["--transport", transport]
    pong = path.srn.start(TWINLINK, "pong", *side, "--listen", "tcp/127.0.0.1:7447", stderr=subprocess.DEVNULL)
    held = tunnel(path.client, transport, "team-srn003")
    wait_until(lambda: listens(path.client, 7446 + ports), patience(20))
    assert not listens(path.client, 7447 + ports), "a port more than is needed"
    ping = path.client.start(
        TWINLINK, "ping", *side, "--connect", "tcp/127.0.0.1:7447", "--count", "100", "--size", "5K", "--interval", "0",
        "--json", stdout=subprocess.PIPE,
    )  # fmt: skip
    stdout, _ = ping.communicate(timeout=patience(60))
    summary = json.loads(stdout.splitlines()[-1])
    assert (summary["acknowledged"], summary["lost"]) == (100, 0)

    again = tunnel(path.client, transport, "team-srn003")
    _, complaint = again.communicate(timeout=patience(20))
    assert again.returncode not in (0, None)
    assert "7447" in complaint, "what is in use is not said"
    for process in (held, pong):
        end(process, patience(20))


def test_a_wrong_call_is_explained(path: Path) -> None:
    for arguments in ([], ["zenoh"], ["mqtt", "team-srn003"]):
        wrong = path.client.start(str(ROOT / "colosseum" / "tunnel.sh"), *arguments, stderr=subprocess.PIPE)
        _, complaint = wrong.communicate(timeout=patience(20))
        assert wrong.returncode == 64
        assert "usage" in complaint
