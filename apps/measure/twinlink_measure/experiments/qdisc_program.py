"""A process inside the guest: measures cyclic PubSub over queueing disciplines, one part after the other.

Arguments: ``plan``: a file with ``parts`` as in the data file, ``cycles``, ``bridged``, and ``cyclictest``, the command
that starts it or None; ``out``: the folder for `FACTS` about the guest and the results, ``NUMBER.json``.  It prints the
number of each part that begins.
"""

import json
import platform
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..namespaces import ADDRESSES
from .cross_traffic import HEADERS
from .cyclictest import scheduling_latency
from .network import ELSEWHERE, HOSTS, PORT, Network, NetworkFailed
from .program import Program, arguments, say
from .pubsub_node import AT_ONCE, GATE, TXTIME, message_octets
from .qdisc import CBS, ETF, PRIORITY, TAPRIO, Qdisc

FACTS = "facts.json"  # kernel, and a sentence about scheduling latency
START_S = 0.5  # from the moment when both nodes are ready to the first cycle, at least
WITHIN_S = 60.0  # on an emulated processor, beyond what the cycles take
READY_S = 240.0  # until Python has started there
CROSS_OCTETS = 1200  # of a datagram
RELEASES = {ETF: TXTIME, TAPRIO: GATE}  # what keeps a message until it is due; otherwise nothing does


def qdisc(part: dict[str, Any], name: str) -> Qdisc:
    """The queueing discipline of a part with this name.

    The need of CBS is that of one message in a cycle, with the headers of Ethernet, IPv4 and UDP.
    """
    need_kbit = 8 * (message_octets(part["variables"]) + HEADERS) / part["cycle_ms"]
    opens_ns = int(part["offset_ms"] * 1e6)
    return Qdisc(
        name=name,
        rate_mbit=part.get("rate_mbit", 0),
        idleslope_kbit=round(need_kbit * part.get("idleslope", 0)) if name == CBS else 0,
        cycle_ns=int(part["cycle_ms"] * 1e6),
        gate_ns=(opens_ns, opens_ns + int(part.get("window_ms", 0) * 1e6)),
    )


class Nodes:
    """Publisher, loopback host and cross traffic, which serve all parts, and which the stack ends."""

    def __init__(self, network: Network, stack: ExitStack) -> None:
        self._network = network
        self._publisher, self._loopback = (
            Program("pubsub_node", _node(side), network.prefix(HOSTS[side])) for side in (0, 1)
        )
        cross = {"host": ELSEWHERE[0], "port": PORT + 1, "octets": CROSS_OCTETS}
        self._cross = Program("cross_traffic", cross, network.prefix(HOSTS[0]))
        programs = [stack.enter_context(each) for each in (self._publisher, self._loopback, self._cross)]
        for each in programs:
            each.next(READY_S)

    def measure(self, part: dict[str, Any], cycles: int) -> dict[str, Any]:
        """What both nodes say of a part, and what was counted between them.  Raises NetworkFailed or ProgramFailed."""
        bridge = qdisc(part, part["bridge"]) if "bridge" in part else None
        self._network.set(qdisc(part, part["qdisc"]), bridge)
        cross_mbit = part.get("cross_mbit", 0)
        if cross_mbit:
            self._cross.tell({"rate_mbit": cross_mbit})
        cycle_ns = int(part["cycle_ms"] * 1e6)
        # The gates of TAPRIO begin their cycles at whole multiples as well.
        start_ns = (time.time_ns() + int(START_S * 1e9)) // cycle_ns * cycle_ns + cycle_ns
        given = {name: part[name] for name in ("cycle_ms", "offset_ms", "lead_ms", "variables")}
        given |= {"cycles": cycles, "release": RELEASES.get(part["qdisc"], AT_ONCE), "start_ns": start_ns}
        for node in (self._loopback, self._publisher):
            node.tell(given)
        within_s = WITHIN_S + cycles * part["cycle_ms"] / 1000
        found = {"publisher": self._publisher.next(within_s), "loopback": self._loopback.next(within_s)}
        if cross_mbit:
            self._cross.tell({"rate_mbit": 0})
            found |= self._cross.next(WITHIN_S)
        statistics = {"at_bridge": self._network.at_bridge(), "statistics": self._network.statistics()}
        return {"start_ns": start_ns, **found, **statistics}


def _node(side: int) -> dict[str, Any]:
    there = {"peer_host": ADDRESSES[1 - side], "peer_port": PORT}
    return {"role": HOSTS[side], "host": ADDRESSES[side], "port": PORT, "priority": PRIORITY, **there}


def main() -> None:
    """Measure all parts."""
    given = arguments()
    plan, out = json.loads(Path(given["plan"]).read_text()), Path(given["out"])
    latency = scheduling_latency(plan["cycles"], plan["cyclictest"])
    _write(out / FACTS, json.dumps({"kernel": platform.release(), "latency": latency}))
    with Network(plan["bridged"]) as network, ExitStack() as stack:
        nodes = Nodes(network, stack)
        for number, part in enumerate(plan["parts"]):
            say(part=number)
            try:
                found = nodes.measure(part, plan["cycles"])
            except NetworkFailed as error:
                found = {"error": str(error)}
            _write(out / f"{number}.json", json.dumps(found))


def _write(path: Path, text: str) -> None:
    """A file that appears whole."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(path)


if __name__ == "__main__":
    main()
