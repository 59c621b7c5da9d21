"""Frames that are dropped (section 7 of docs/protocol.md)."""

from typing import Any

from tests.traces.script import PEER, Trace


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
FRAMES_OF_NO_USE = {
    "truncated": malformed("truncated", raw_hex=HEX[:62]),
    "magic": malformed("magic", raw_hex="4c54" + HEX[4:]),
    "version": malformed("version", raw_hex=HEX[:4] + "02" + HEX[6:]),
    "kind": malformed("kind", raw_hex=HEX[:6] + "0d" + HEX[8:]),
    "length": malformed("length", raw_hex=HEX + "00"),
    "sequence": malformed("sequence", sequence=str(2**63), payload_octets=4),
    "topic": malformed("topic", topic="traffic/_link", sequence="0", payload_octets=4),
    "ack": malformed("ack", "data", "ack/f", raw_hex="544c0102" + "00000001" + HEX[16:64] + "00"),
    "topic-of-a-hello": malformed("topic", "hello", "traffic/f", sequence="900000000", body={}),
    "nak": malformed("nak", "data", "ack/f", raw_hex="544c0106" + "00000015" + HEX[16:64] + "00" * 21),
    "hello": malformed("hello", "hello", "traffic/_link", sequence="900000000", body={"node": 1}),
}
