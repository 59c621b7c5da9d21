"""The publisher's and the loopback host's network namespaces, and a cable between them, or a bridge; inside the guest.

Each end of a cable is a veth device with four queues.  A bridge stands in a namespace of its own.  It knows cyclic
messages by their UDP port, as a veth device forgets the priority of what leaves a namespace.
"""

import json
import subprocess
from collections.abc import Sequence
from typing import Self

from ..namespaces import ADDRESSES, MACS
from .qdisc import PRIORITY, Qdisc

HOSTS = ("publisher", "loopback")
BRIDGE = "bridge"
PORT = 4840  # of both, in OPC UA's own range
ELSEWHERE = ("198.18.0.3", "02:00:00:00:00:03")  # address of cross traffic: a host that does not exist
_MARK = f"protocol ip u32 match ip protocol 17 0xff match ip dport {PORT} 0xffff action skbedit priority {PRIORITY}"
_QUEUES = ("numtxqueues", "4", "numrxqueues", "4")


class NetworkFailed(Exception):
    """A command failed, so that the network cannot be made."""


class Network:
    """A context manager that makes it, and removes it.

    Args:
        bridged: whether a bridge is between the hosts.
    """

    def __init__(self, bridged: bool) -> None:
        self._bridged = bridged

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _make(self) -> None:
        for name in (*HOSTS, *([BRIDGE] if self._bridged else [])):
            _call("ip", "netns", "add", name)
        if self._bridged:
            self._make_bridge()
        else:
            _call("ip", "link", "add", "eth0", "netns", HOSTS[0], *_QUEUES, "type", "veth", "peer", "name", "eth0",
                  "netns", HOSTS[1], *_QUEUES)  # fmt: skip
        for number, name in enumerate(HOSTS):
            _call("ip", "-n", name, "link", "set", "eth0", "address", MACS[number], "addrgenmode", "none", "up")
            _call("ip", "-n", name, "address", "add", f"{ADDRESSES[number]}/24", "dev", "eth0")
            for address, mac in ((ADDRESSES[1 - number], MACS[1 - number]), ELSEWHERE):
                _call("ip", "-n", name, "neighbour", "add", address, "lladdr", mac, "dev", "eth0")

    def _make_bridge(self) -> None:
        _call("ip", "-n", BRIDGE, "link", "add", "br0", "type", "bridge")
        _call("ip", "-n", BRIDGE, "link", "set", "br0", "addrgenmode", "none", "up")
        for name in HOSTS:
            _call("ip", "link", "add", name, "netns", BRIDGE, *_QUEUES, "type", "veth", "peer", "name", "eth0",
                  "netns", name, *_QUEUES)  # fmt: skip
            _call("ip", "-n", BRIDGE, "link", "set", name, "master", "br0", "addrgenmode", "none", "up")
            _call(*_inside(BRIDGE), "tc", "qdisc", "add", "dev", name, "clsact")

    def set(self, host: Qdisc, bridge: Qdisc | None) -> None:
        """Set the queueing disciplines of the hosts and of the bridge's ports, with new counters.

        Raises NetworkFailed.
        """
        for name in HOSTS:
            _tc(name, ["qdisc del dev eth0 root"], may_fail=True)  # there was none
            _tc(name, host.commands("eth0"))
        if bridge is None:
            return
        for name in HOSTS:
            _tc(BRIDGE, [f"qdisc del dev {name} root", f"filter del dev {name} ingress"], may_fail=True)
            _tc(BRIDGE, [*bridge.commands(name), f"filter add dev {name} ingress {_MARK}"])

    def prefix(self, host: str) -> list[str]:
        """The prefix that runs a command in the namespace of a host."""
        return _inside(host)

    def at_bridge(self) -> list[int] | None:
        """How many cyclic messages have reached the bridge from each host; None without a bridge."""
        if not self._bridged:
            return None
        counts = []
        for name in HOSTS:
            told = json.loads(_call(*_inside(BRIDGE), "tc", "-s", "-j", "filter", "show", "dev", name, "ingress"))
            actions = [action for each in told for action in each.get("options", {}).get("actions", [])]
            counts.append(sum(action["stats"]["packets"] for action in actions))
        return counts

    def statistics(self) -> str:
        """What tc says of each queueing discipline."""
        return "".join(
            f"{name}:\n{_call(*_inside(name), 'tc', '-s', 'qdisc', 'show')}"
            for name in (*HOSTS, *([BRIDGE] if self._bridged else []))
        )

    def _remove(self) -> None:
        for name in (*HOSTS, BRIDGE):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _inside(name: str) -> list[str]:
    return ["nsenter", f"--net=/run/netns/{name}"]


def _tc(name: str, commands: Sequence[str], may_fail: bool = False) -> None:
    """Run tc in a namespace, once for all commands: a process takes long to start on an emulated processor."""
    force = ("-force",) if may_fail else ()
    _call(*_inside(name), "tc", *force, "-batch", "-", text="\n".join(commands), may_fail=may_fail)


def _call(*command: str, text: str = "", may_fail: bool = False) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, errors="backslashreplace", check=False)
    if done.returncode != 0 and not may_fail:
        shown = " ".join(command[2:] if command[0] == "nsenter" else command)
        raise NetworkFailed(f"`{shown}` failed: {done.stderr.strip()}{f' (of: {text})' if text else ''}")
    return done.stdout
