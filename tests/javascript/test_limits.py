"""What the JavaScript node keeps of a peer's numbers has a limit; what is beyond it is counted, and comes again."""

import json
import subprocess
from typing import Any

import pytest

from tests.javascript.running import MODULE, NODE, needs_node

pytestmark = needs_node
KEPT = 16_384  # ranges of a session
SENT = 9_000  # on each of two flows, which have the limit together

# A peer leaves out every other number, which it sends in the end.
SCRIPT = """
const { ReceivingNode } = await import("MODULE/index.js");
const { Kind, compose, hexEpoch } = await import("MODULE/frames.js");
const now = { monoMs: 1e9, unixNs: 10n ** 15n }, node = new ReceivingNode({ node: "n", epoch: 1n, now });
const peer = 2n, text = (value) => new TextEncoder().encode(JSON.stringify(value));
const put = (kind, flow, number, body) => {
  node.receive(`traffic/${flow}`, compose(kind, peer, number, 1n, body), now);
  return node.transmits();
};
const kept = () => node.peers.sessions.get(peer).kept.count;
const heard = { [hexEpoch(1n)]: 1 };
put(Kind.HELLO, "_link", 1n, text({ node: "peer", heard, flows: {}, repairs: true, detect: [] }));
for (const flow of FLOWS) node.subscribe(flow);
let most = 0, delivered = 0;
for (let number = 1n; number < 2n * SENTn; number += 2n)
  for (const flow of ["f", "g"]) { put(Kind.DATA, flow, number, new Uint8Array(9)); most = Math.max(most, kept()); }
const limited = node.stats.limited;
for (const flow of ["f", "g"]) put(Kind.ABANDONED, flow, 2n * SENTn, [0n]);   // a probe
const probed = kept();
for (let number = 0n; number < 2n * SENTn; number += 1n) for (const flow of ["f", "g"]) {
  put(number % 2n ? Kind.DATA : Kind.RETRANSMIT, flow, number, new Uint8Array(9));
  for (let one; (one = node.take(flow, now)); delivered++);
}
console.log(JSON.stringify({ most, limited, probed, delivered, rejected: node.stats.rejected ?? 0, left: kept() }));
"""


@pytest.mark.parametrize(
    "flows", [pytest.param([], id="rejected"), pytest.param(["f", "g"], id="taken", marks=pytest.mark.thorough)]
)
def test_a_peer_that_leaves_out_every_other_number_fills_no_memory(flows: list[str]) -> None:
    script = SCRIPT.replace("MODULE", MODULE.as_uri()).replace("FLOWS", json.dumps(flows)).replace("SENT", str(SENT))
    done = subprocess.run([str(NODE), "--input-type=module", "-e", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counted: dict[str, Any] = json.loads(done.stdout)
    assert KEPT <= counted["most"] <= KEPT + 16, counted
    assert counted["probed"] <= counted["most"], counted
    assert counted["limited"] > 0, counted
    assert counted["delivered"] + counted["rejected"] == 4 * SENT, counted
    assert counted["left"] <= 8, counted
