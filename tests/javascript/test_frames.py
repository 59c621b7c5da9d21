"""Frames as the JavaScript module reads them: the vectors, and what has been changed on the way."""

import json
import random
from pathlib import Path

import pytest

from tests.javascript.running import needs_node
from tests.javascript.traced import Bridge
from tests.traces.script import NODE, PEER
from tests.wire.make_vectors import VECTORS
from twinlink.protocol.frames import Kind

pytestmark = needs_node
TWINS = sorted(path for path in VECTORS.glob("*.json") if not path.name.startswith("websocket"))
OF_THE_WHOLE = "malformed-fragment"  # which only the node sees: the trace drops-fragment shows that


@pytest.mark.parametrize("path", [path for path in TWINS if path.stem != OF_THE_WHOLE], ids=lambda path: path.stem)
def test_a_vector(bridge: Bridge, path: Path) -> None:
    twin = json.loads(path.read_text())
    read = bridge.call("parse", [twin["topic"], path.with_suffix(".bin").read_bytes().hex()])["delivered"][0]
    if "malformed" in twin:
        assert read == {"malformed": twin["malformed"]}
        return
    assert Kind(read["kind"]).name.lower() == twin["kind"]
    assert {key: read[key] for key in ("epoch", "sequence", "sentNs")} == {
        "epoch": twin["epoch"], "sequence": twin["sequence"], "sentNs": twin["sent_ns"],
    }  # fmt: skip


def test_what_a_stranger_changes_does_not_end_it(bridge: Bridge) -> None:
    chance = random.Random(1)
    frames = [(json.loads(path.read_text())["topic"], path.with_suffix(".bin").read_bytes()) for path in TWINS]
    bridge.call("begin", {"node": "node", "epoch": NODE})
    bridge.call("subscribe", "spectrum")
    malformed = 0
    for _ in range(3000):
        topic, octets = chance.choice(frames)
        changed = bytearray(octets)
        for _ in range(chance.randint(0, 3)):
            changed[chance.randrange(len(changed))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        changed[8:16] = bytes.fromhex(PEER)
        did = bridge.call("receive", [topic, bytes(changed).hex(), False])
        malformed += sum(event["event"] == "malformed" for _, event in did["reported"])
    bridge.call("advance", 100)
    assert malformed
