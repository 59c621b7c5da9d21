"""What the JavaScript node keeps of a peer's numbers has a limit; what is beyond it is counted, and comes again."""

import json
import subprocess
from typing import Any

import pytest

from tests.javascript.running import MODULE, NODE, needs_node

pytestmark = needs_node
KEPT = 16_384  # ranges of a session
SENT = 9_000  # on each of two flows, which have the limit together

# A peer that repairs, but on flow "detected".
PEER = """
const { ReceivingNode } = await import("MODULE/index.js");
const { Kind, compose, hexEpoch } = await import("MODULE/frames.js");
const now = { monoMs: 1e9, unixNs: 10n ** 15n }, node = new ReceivingNode({ node: "n", epoch: 1n, now });
const peer = 2n, text = (value) => new TextEncoder().encode(JSON.stringify(value));
const put = (kind, flow, number, body = new Uint8Array(9)) => {
  node.receive(`traffic/${flow}`, compose(kind, peer, number, 1n, body), now);
  return node.transmits();
};
const session = () => node.peers.sessions.get(peer), kept = () => session().kept.count;
const heard = { [hexEpoch(1n)]: 1 };
put(Kind.HELLO, "_link", 1n, text({ node: "peer", heard, flows: {}, repairs: true, detect: ["detected"] }));
"""
# The peer leaves out every other number, which it sends in the end.
LEFT_OUT = """
for (const flow of FLOWS) node.subscribe(flow);
let most = 0, delivered = 0;
for (let number = 1n; number < 2n * SENTn; number += 2n)
  for (const flow of ["f", "g"]) { put(Kind.DATA, flow, number); most = Math.max(most, kept()); }
const limited = node.stats.limited;
for (const flow of ["f", "g"]) put(Kind.ABANDONED, flow, 2n * SENTn, [0n]);   // a probe
const probed = kept();
for (let number = 0n; number < 2n * SENTn; number += 1n) for (const flow of ["f", "g"]) {
  put(number % 2n ? Kind.DATA : Kind.RETRANSMIT, flow, number);
  for (let one; (one = node.take(flow, now)); delivered++);
}
console.log(JSON.stringify({ most, limited, probed, delivered, rejected: node.stats.rejected ?? 0, left: kept() }));
"""
# Every other message of a flow was lost, and of another one given up, as in a long session.
PAST = """
for (const flow of ["f", "detected", "given-up"]) node.subscribe(flow);
for (let number = 0n; number < 2n * SENTn; number += 2n) {
  put(Kind.DATA, "detected", number);
  put(Kind.DATA, "given-up", number + 1n);
  put(Kind.ABANDONED, "given-up", number + 2n, [0n, number, number + 1n]);
  for (const flow of ["detected", "given-up"]) while (node.take(flow, now));
}
for (const number of [1n, 3n, 5n, 7n]) put(Kind.DATA, "f", number);
const { missing } = session().streams.get("f");
console.log(JSON.stringify({ limited: node.stats.limited ?? 0, missing: missing.count, left: kept() }));
"""
# The peer has one message missing, and gives up every other one of a flow on which all are rejected.
CUT = """
const end = 4n * SENTn, gaveUp = (number) => put(Kind.ABANDONED, "f", end, [0n, number, number + 1n]);
for (let number = 1n; number < end; number += 1n) put(Kind.DATA, "f", number);
for (let number = 2n; number < end; number += 2n) gaveUp(number);
console.log(JSON.stringify({ left: kept() }));
"""


def counted(script: str, flows: list[str]) -> dict[str, Any]:
    script = (PEER + script).replace("MODULE", MODULE.as_uri())
    script = script.replace("FLOWS", json.dumps(flows)).replace("SENT", str(SENT))
    done = subprocess.run([str(NODE), "--input-type=module", "-e", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "flows", [pytest.param([], id="rejected"), pytest.param(["f", "g"], id="taken", marks=pytest.mark.thorough)]
)
def test_a_peer_that_leaves_out_every_other_number_fills_no_memory(flows: list[str]) -> None:
    found = counted(LEFT_OUT, flows)
    assert KEPT <= found["most"] <= KEPT + 16, found
    assert found["probed"] <= found["most"], found
    assert found["limited"] > 0, found
    assert found["delivered"] + found["rejected"] == 4 * SENT, found
    assert found["left"] <= 8, found


def test_what_is_past_leaves_room_for_what_is_missing() -> None:
    found = counted(PAST, [])
    assert (found["limited"], found["missing"]) == (0, 4), found
    assert found["left"] <= KEPT, found


def test_a_peer_that_gives_up_every_other_rejected_number_fills_no_memory() -> None:
    assert counted(CUT, [])["left"] <= KEPT + 16
