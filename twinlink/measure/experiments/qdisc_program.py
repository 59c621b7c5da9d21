"""A process inside the guest: measures cyclic PubSub over queueing disciplines, one part after the other.

Arguments: ``plan``: a file with ``parts`` as in the data file, ``cycles``, and ``cyclictest``, the command that starts
it or None; ``out``: the folder for `STARTED` (a sentence about scheduling latency) and the results, ``NUMBER.json``.
It prints the number of each part that begins.
"""

import json
import time
from pathlib import Path
from typing import Any

from ..namespaces import ADDRESSES
from .cross_traffic import HEADERS
from .cyclictest import scheduling_latency
from .network import ELSEWHERE, HOSTS, PORT, Network, NetworkFailed
from .program import Program, ProgramFailed, arguments, say
from .pubsub_node import AT_ONCE, GATE, TXTIME, message_octets
from .qdisc import CBS, ETF, PRIORITY, TAPRIO, Qdisc

LATENCY = "latency.txt"
START_S = 0.5  # from the moment when both nodes are ready to the first cycle, at least
WITHIN_S = 60.0  # on an emulated processor, beyond what the cycles take
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


def measure(part: dict[str, Any], cycles: int) -> dict[str, Any]:
    """What both nodes say of a part, and what was counted between them.  Raises NetworkFailed or ProgramFailed."""
    bridge = qdisc(part, part["bridge"]) if "bridge" in part else None
    with Network(qdisc(part, part["qdisc"]), bridge) as network:
        given = [
            {
                "role": HOSTS[side], "host": ADDRESSES[side], "port": PORT, "peer_host": ADDRESSES[1 - side],
                "peer_port": PORT, "priority": PRIORITY, "release": RELEASES.get(part["qdisc"], AT_ONCE),
                "cycles": cycles, **{name: part[name] for name in ("cycle_ms", "offset_ms", "lead_ms", "variables")},
            }
            for side in (0, 1)
        ]  # fmt: skip
        with (
            Program("pubsub_node", given[1], network.prefix(HOSTS[1])) as loopback,
            Program("pubsub_node", given[0], network.prefix(HOSTS[0])) as publisher,
        ):
            for node in (loopback, publisher):
                node.ready()
            if not part.get("cross_mbit"):
                return _cycles(network, publisher, loopback, part["cycle_ms"], cycles)
            cross = {"host": ELSEWHERE[0], "port": PORT + 1, "rate_mbit": part["cross_mbit"], "octets": CROSS_OCTETS}
            with Program("cross_traffic", cross, network.prefix(HOSTS[0])) as traffic:
                traffic.ready()
                return _cycles(network, publisher, loopback, part["cycle_ms"], cycles)


def _cycles(network: Network, publisher: Program, loopback: Program, cycle_ms: float, cycles: int) -> dict[str, Any]:
    cycle_ns = int(cycle_ms * 1e6)
    start_ns = (time.time_ns() + int(START_S * 1e9)) // cycle_ns * cycle_ns + cycle_ns  # as the gates of TAPRIO
    for node in (loopback, publisher):
        node.tell({"start_ns": start_ns})
    within_s = WITHIN_S + cycles * cycle_ms / 1000
    return {
        "start_ns": start_ns,
        "publisher": publisher.next(within_s),
        "loopback": loopback.next(within_s),
        "at_bridge": network.at_bridge(),
        "statistics": network.statistics(),
    }


def main() -> None:
    """Measure all parts."""
    given = arguments()
    plan, out = json.loads(Path(given["plan"]).read_text()), Path(given["out"])
    _write(out / LATENCY, scheduling_latency(plan["cycles"], plan["cyclictest"]))
    for number, part in enumerate(plan["parts"]):
        say(part=number)
        try:
            found = measure(part, plan["cycles"])
        except (NetworkFailed, ProgramFailed) as error:
            found = {"error": str(error)}
        _write(out / f"{number}.json", json.dumps(found))


def _write(path: Path, text: str) -> None:
    """A file that appears whole."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(path)


if __name__ == "__main__":
    main()
