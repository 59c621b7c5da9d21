"""Frames that are dropped (section 7 of docs/protocol.md)."""

from typing import Any

from tests.traces.script import NODE, PEER, Trace


def malformed(reason: str, kind: str = "data", topic: str = "traffic/f", **fields: Any) -> Trace:
    trace = Trace("A node MUST drop and count what violates this page, and MUST NOT answer it or end because of it.")
    trace.subscribe("f")
    trace.up()
    trace.receive(kind, topic, **fields)
    trace.delivers()
    trace.withholds({"topic": "ack/f"}, within_ms=150)
    trace.reports({"event": "malformed", "reason": reason}, of=("malformed",))
    trace.wait(151)
    trace.data("f", 0)
    trace.delivers(0)
    return trace


HEX = "544c0101" + "00000004" + PEER + "0000000000000000" + "00038d7ea4c68000" + "00000000"
HELLO = {"node": "peer", "heard": {NODE: "$hello"}, "flows": {}, "repairs": True}
WHOLE = {"kind": "data", "epoch": PEER, "sequence": "0", "payload_octets": 4}
FRAMES_OF_NO_USE = {
    "truncated": malformed("truncated", raw_hex=HEX[:62]),
    "magic": malformed("magic", raw_hex="4c54" + HEX[4:]),
    "version": malformed("version", raw_hex=HEX[:4] + "02" + HEX[6:]),
    "kind": malformed("kind", raw_hex=HEX[:6] + "0e" + HEX[8:]),
    "length": malformed("length", raw_hex=HEX + "00"),
    "sequence": malformed("sequence", sequence=str(2**63), payload_octets=4),
    "topic": malformed("topic", topic="traffic/_link", sequence="0", payload_octets=4),
    "sequence-of-a-hello": malformed("sequence", "hello", "traffic/_link", sequence=str(2**63), body=HELLO),
    "ack": malformed("ack", "data", "ack/f", raw_hex="544c0102" + "00000001" + HEX[16:64] + "00"),
    "topic-of-a-hello": malformed("topic", "hello", "traffic/f", sequence="900000000", body={}),
    "nak": malformed("nak", "data", "ack/f", raw_hex="544c0106" + "00000015" + HEX[16:64] + "00" * 21),
    "nak-of-adjacent-ranges": malformed(
        "nak", "nak", "ack/f", of_epoch=NODE, known="9", ranges=[["1", "3"], ["3", "5"]]
    ),
    "ack-range": malformed(
        "ack_range", "ack_range", "ack/f", of_epoch=NODE, consumed="0", first="3", end="3", t2_ns="1"
    ),
    "ack-range-beyond-the-last-number": malformed(
        "ack_range", "ack_range", "ack/f", of_epoch=NODE, consumed="0", first=str(2**63 - 1), end=str(2**63), t2_ns="1"
    ),
    "abandoned-beyond-the-last-number": malformed(
        "abandoned", raw_hex="544c0107" + "00000018" + HEX[16:64] + "00" * 8 + "7f" + "ff" * 7 + "80" + "00" * 7
    ),
    "abandoned": malformed("abandoned", raw_hex="544c0107" + "00000008" + HEX[16:64] + "0000000000000003"),
    "bundle": malformed("bundle", raw_hex="544c0108" + "00000005" + HEX[16:64] + "00" * 5),
    "run": malformed("run", raw_hex="544c010d" + "00000010" + HEX[16:64] + "00000003" + "00000004" + "00" * 8),
    "run-of-nothing": malformed("run", raw_hex="544c010d" + "00000008" + HEX[16:64] + "00000003" + "00000000"),
    "run-of-too-many": malformed(
        "run", raw_hex="544c010d" + "00001009" + HEX[16:64] + "00001001" + "00000001" + "00" * 4097
    ),
    "run-beyond-the-last-number": malformed("run", "run", sequence=str(2**63 - 1), count=2, payload_octets=1),
    "fragment": malformed("fragment", "fragment", sequence="0", octets=16, whole=WHOLE),
    "fragment-progress": malformed(
        "fragment_progress", "data", "ack/f", raw_hex="544c010a" + "00000001" + HEX[16:64] + "00"
    ),
    "refused": malformed("refused", "refused", "ack/f", of_epoch=NODE, end=str(2**63)),
    "hello": malformed("hello", "hello", "traffic/_link", sequence="900000000", body={"node": 1}),
}
