"""Stands in for Colosseum's SRNs: namespaces with the containers' folders, interfaces and addresses.

A node has its own network (can0, col0 and tr0 as veth pairs), processes, and root file system: a tmpfs that holds
/root, /run and /logs, with the system's folders and the checkout bound into it.  Nothing outside is changed.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]
TOOLS = ("ip", "unshare", "nsenter", "mount", "chroot", "bash")
PREFIX = "twinsrn"
TEAM, RESERVATION = 9, 197
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# As process 1, bash reaps what the programs leave behind, as a container's init does.
SETUP = """
set -e
new=$(mktemp -d)
mount -t tmpfs -o mode=755 tmpfs "$new"
for each in bin sbin lib lib32 lib64 libx32 usr etc dev sys; do
  if [ -L "/$each" ]; then cp -P "/$each" "$new/$each"
  elif [ -d "/$each" ]; then mkdir "$new/$each"; mount --rbind "/$each" "$new/$each"; fi
done
mkdir -p "$new"/{proc,root/radio_api,run,logs,tmp,opt/twinlink,opt/recordings} "$new/$1"
mount -t proc proc "$new/proc"
mount --rbind "$1" "$new/$1"
mount --bind "$1/.venv" "$new/opt/twinlink"
mount --bind "$1/examples/recordings" "$new/opt/recordings"
cp -r "$1/colosseum/radio_api/." "$new/root/radio_api"
echo "127.0.0.1 localhost" >"$new/run/etc-hosts"
mount --bind "$new/run/etc-hosts" "$new/etc/hosts"
ip link set lo up
exec chroot "$new" bash -c 'cd /; echo ready; sleep infinity & wait'
"""


class CannotBuild(Exception):
    """Namespaces cannot be made here; says why."""


def why_not() -> str | None:
    """What stands in the way of such nodes on this machine; None when nothing does."""
    if os.geteuid() != 0:
        return "network and mount namespaces need root"
    if missing := [tool for tool in TOOLS if shutil.which(tool, path=PATH) is None]:
        return f"{', '.join(missing)} not found (packages iproute2, util-linux)"
    try:
        with Srn(1, ""):
            return None
    except CannotBuild as error:
        return str(error)


class Srn:
    """One node: a container of the image, before its boot.

    Args:
        number: of the SRN, 1 to 128.
        modem_config: text of the file that is pushed as radio.conf; "" for none.

    Attributes:
        namespace: name of its network.
    """

    def __init__(self, number: int, modem_config: str) -> None:
        self.number = number
        self.namespace = f"{PREFIX}-{os.getpid()}-{number:03}"
        self._modem_config = modem_config
        self._process: subprocess.Popen[str] | None = None
        self._init = 0  # process 1 of the node, as seen from here

    def __enter__(self) -> Self:
        try:
            run("ip", "netns", "add", self.namespace)
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, "unshare", "--mount", "--pid", "--fork", "--kill-child",
                 "--propagation", "private", "bash", "-c", SETUP, "setup", str(ROOT)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert self._process.stdout is not None
            assert self._process.stderr is not None
            if self._process.stdout.readline() != "ready\n":
                raise CannotBuild(f"a node's file system could not be set up: {self._process.stderr.read().strip()}")
            pid = self._process.pid
            self._init = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
            if self._modem_config:
                self.path("/root/radio_api/radio.conf").write_text(self._modem_config)
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def remove(self) -> None:
        """End everything on the node, and take it away."""
        if self._process:
            self._process.kill()  # its process 1 is killed with it, and so are all others
            self._process.communicate()
        with contextlib.suppress(CannotBuild):
            run("ip", "netns", "delete", self.namespace)

    def path(self, absolute: str) -> Path:
        """Where a file of the node is for us."""
        return Path(f"/proc/{self._init}/root{absolute}")

    def command(self, *command: str) -> list[str]:
        """A command line that runs this on the node."""
        into = ["nsenter", f"--target={self._init}", "--mount", "--net", "--pid", f"--root=/proc/{self._init}/root"]
        return [*into, "--wdns=/", *command]

    def start(self, *command: str, **kwargs: Any) -> subprocess.Popen[str]:
        """Start a command on the node, with the environment that the container's root has."""
        return subprocess.Popen(self.command(*command), text=True, env={"PATH": PATH, "HOME": "/root"}, **kwargs)


def end(process: subprocess.Popen[str], within_s: float) -> None:
    """End a command on a node, which is a child of nsenter, with SIGTERM."""
    pid = process.pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        os.kill(int(child), signal.SIGTERM)
    process.wait(within_s)


def cable(nodes: list[Srn]) -> None:
    """Join two nodes, each with can0, col0 and tr0, by the addresses of Colosseum.

    As in a batch job, can0 is down: nothing leads out.
    """
    first, second = nodes
    for name in ("can0", "col0", "tr0"):
        run("ip", "-n", first.namespace, "link", "add", name, "type", "veth",
            "peer", "name", name, "netns", second.namespace)  # fmt: skip
    for node in nodes:
        for name, address in (
            ("can0", f"172.18.{TEAM}.{100 + node.number}/16"),
            ("col0", f"172.30.{RESERVATION}.{100 + node.number}/24"),
            ("tr0", f"192.168.{100 + node.number}.1/24"),
        ):
            run("ip", "-n", node.namespace, "address", "add", address, "dev", name)
            if name != "can0":
                run("ip", "-n", node.namespace, "link", "set", name, "up")


def run(*command: str) -> str:
    """Run a command here; raises CannotBuild with its complaint."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBuild(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
