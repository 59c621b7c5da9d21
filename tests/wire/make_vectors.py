"""Makes docs/vectors: frames as binary files, each beside a JSON twin that says what it means.

``python -m tests.wire.make_vectors``, from the checkout's root; the outcome is committed and always the same.
"""

import json
import struct
from pathlib import Path

from tests.traces.frames import described
from twinlink.protocol.frames import (
    REJECTED,
    AbandonReason,
    Hello,
    Kind,
    abandoned_body,
    ack_body,
    ack_range_body,
    check,
    fragment_progress_body,
    frame,
    nak_body,
    refused_body,
    run_header,
)

VECTORS = Path(__file__).parents[2] / "docs" / "vectors"
EPOCH, PEER = 0x0123456789ABCDEF, 0xFEDCBA9876543210
SENT_NS = 1_790_000_000_123_456_789


def good() -> dict[str, tuple[str, bytes]]:
    """Name -> topic, frame."""
    record = (41, SENT_NS, SENT_NS + 870_000)
    later = [(42 + n, SENT_NS + n * 500_000, SENT_NS + 870_000 + n * 500_000) for n in range(3)]
    hello = Hello("gnb-1", {PEER: 3}, {"spectrum": 41, "telemetry": 0}).encode()
    repairing = Hello("gnb-1", {PEER: 2**63 - 1}, {"spectrum": 41}, True, frozenset(["telemetry"])).encode()
    behind = Hello("gnb-1", {PEER: 3}, {"spectrum": 41}, behind=True).encode()
    placing = Hello("gnb-1", {PEER: 3}, {"spectrum": 41}, True, start_sequences={PEER: {"spectrum": 17}}).encode()
    running = Hello("gnb-1", {PEER: 3}, {"spectrum": 41}, True, runs=True).encode()
    small = Hello("gnb-1", {PEER: 3}, {"spectrum": 41}, True, max_payload=1_048_576).encode()
    bundled = b"".join(
        (
            frame(Kind.RETRANSMIT, EPOCH, 39, SENT_NS, bytes(range(16))),
            frame(Kind.DATA, EPOCH, 42, SENT_NS + 1000, b""),
            frame(Kind.DATA, EPOCH, 43, SENT_NS + 2000, bytes(range(5))),
        )
    )
    whole = frame(Kind.DATA, EPOCH, 41, SENT_NS, bytes(range(16)))
    rejected = (45, SENT_NS, REJECTED)
    extended = b'{"node":"gnb-1","heard":{},"flows":{},"some-later-version":[1,2,3]}'
    return {
        "data": ("traffic/spectrum", frame(Kind.DATA, EPOCH, 41, SENT_NS, bytes(range(16)))),
        "data-empty": ("traffic/a.b-c_d", frame(Kind.DATA, EPOCH, 0, SENT_NS, b"")),
        "data-highest": ("traffic/0", frame(Kind.DATA, 2**64 - 1, 2**63 - 1, 2**64 - 1, b"\xff")),
        "ack": ("ack/spectrum", frame(Kind.ACK, PEER, 7, SENT_NS + 900_000, ack_body(EPOCH, 41, [record]))),
        "ack-batch": ("ack/spectrum", frame(Kind.ACK, PEER, 8, SENT_NS + 2_000_000, ack_body(EPOCH, 42, later))),
        "ack-consumed-only": ("ack/spectrum", frame(Kind.ACK, PEER, 9, SENT_NS + 3_000_000, ack_body(EPOCH, 45, []))),
        "ack-rejected": (
            "ack/spectrum",
            frame(Kind.ACK, PEER, 10, SENT_NS + 4_000_000, ack_body(EPOCH, 46, [rejected])),
        ),
        "ack-range": (
            "ack/spectrum",
            frame(
                Kind.ACK_RANGE, PEER, 12, SENT_NS + 5_000_000, ack_range_body(EPOCH, 46, 46, 396, SENT_NS + 4_900_000)
            ),
        ),
        "retransmit": ("traffic/spectrum", frame(Kind.RETRANSMIT, EPOCH, 39, SENT_NS, bytes(range(16)))),
        "bundle": ("traffic/spectrum", frame(Kind.BUNDLE, EPOCH, 0, SENT_NS, bundled)),
        "bundle-of-none": ("traffic/spectrum", frame(Kind.BUNDLE, EPOCH, 0, SENT_NS, b"")),
        "run": ("traffic/spectrum", run_header(3, 5, EPOCH, 44, SENT_NS) + bytes(range(15))),
        "fragment": ("traffic/spectrum", frame(Kind.FRAGMENT, EPOCH, 0, SENT_NS, whole[:40])),
        "fragment-progress": (
            "ack/spectrum",
            frame(Kind.FRAGMENT_PROGRESS, PEER, 11, SENT_NS, fragment_progress_body(EPOCH, SENT_NS, 40)),
        ),
        "refused": ("ack/spectrum", frame(Kind.REFUSED, PEER, 0, SENT_NS, refused_body(EPOCH, 46))),
        "nak": ("ack/spectrum", frame(Kind.NAK, PEER, 0, SENT_NS, nak_body(EPOCH, 46, [(38, 39), (41, 44)]))),
        "nak-of-nothing": ("ack/spectrum", frame(Kind.NAK, PEER, 0, SENT_NS, nak_body(EPOCH, 44, []))),
        "abandoned": (
            "traffic/spectrum",
            frame(Kind.ABANDONED, EPOCH, 44, SENT_NS, abandoned_body(AbandonReason.EVICTED, [(38, 39), (41, 43)])),
        ),
        "probe": (
            "traffic/spectrum",
            frame(Kind.ABANDONED, EPOCH, 44, SENT_NS, abandoned_body(AbandonReason.EVICTED, [])),
        ),
        "hello": ("traffic/_link", frame(Kind.HELLO, EPOCH, 12, SENT_NS, hello)),
        "hello-behind": ("traffic/_link", frame(Kind.HELLO, EPOCH, 2**63 - 1, SENT_NS, behind)),
        "hello-running": ("traffic/_link", frame(Kind.HELLO, EPOCH, 16, SENT_NS, running)),
        "hello-small": ("traffic/_link", frame(Kind.HELLO, EPOCH, 14, SENT_NS, small)),
        "hello-placing": ("traffic/_link", frame(Kind.HELLO, EPOCH, 15, SENT_NS, placing)),
        "hello-repairing": ("traffic/_link", frame(Kind.HELLO, EPOCH, 13, SENT_NS, repairing)),
        "hello-with-more": ("traffic/_link", frame(Kind.HELLO, EPOCH, 1, SENT_NS, extended)),
        "bye": ("traffic/_link", frame(Kind.BYE, EPOCH, 0, SENT_NS, b"")),
    }


def bad() -> dict[str, tuple[str, bytes]]:
    """Reason -> topic, octets that must be dropped for it."""
    topic, data = good()["data"]
    return {
        "truncated": (topic, data[:31]),
        "magic": (topic, b"LT" + data[2:]),
        "version": (topic, data[:2] + b"\x02" + data[3:]),
        "kind": (topic, data[:3] + b"\x0e" + data[4:]),
        "length": (topic, data + b"one too many"),
        "sequence": (topic, data[:16] + struct.pack("!Q", 2**63) + data[24:]),
        "topic": ("traffic/_link", data),
        "ack": ("ack/spectrum", frame(Kind.ACK, PEER, 7, SENT_NS, ack_body(EPOCH, 41, []) + b"half a record")),
        "ack_range": (
            "ack/spectrum",
            frame(Kind.ACK_RANGE, PEER, 12, SENT_NS, ack_range_body(EPOCH, 46, 396, 396, SENT_NS)),
        ),
        "nak": ("ack/spectrum", frame(Kind.NAK, PEER, 0, SENT_NS, nak_body(EPOCH, 38, [(37, 39), (39, 40)]))),
        "abandoned": (
            "traffic/spectrum",
            frame(Kind.ABANDONED, EPOCH, 44, SENT_NS, abandoned_body(AbandonReason.EVICTED, [(3, 3)])),
        ),
        "fragment": (topic, frame(Kind.FRAGMENT, EPOCH, 0, SENT_NS, data + b"one too many")),
        "fragment_progress": (
            "ack/spectrum",
            frame(Kind.FRAGMENT_PROGRESS, PEER, 11, SENT_NS, fragment_progress_body(EPOCH, SENT_NS, 40)[:-1]),
        ),
        "refused": ("ack/spectrum", frame(Kind.REFUSED, PEER, 0, SENT_NS, refused_body(EPOCH, 2**63))),
        "bundle": (topic, frame(Kind.BUNDLE, EPOCH, 0, SENT_NS, data + frame(Kind.DATA, PEER, 0, SENT_NS, b""))),
        "run": (topic, run_header(3, 5, EPOCH, 2**63 - 2, SENT_NS) + bytes(range(15))),
        "hello": (
            "traffic/_link",
            frame(Kind.HELLO, EPOCH, 12, SENT_NS, b'{"node":"gnb-1","heard":{"1":3},"flows":{}}'),
        ),
    }


def files() -> dict[str, bytes]:
    """Every file of docs/vectors, by name."""
    made: dict[str, bytes] = {}
    for name, (topic, octets) in good().items():
        check(octets)
        made[f"{name}.bin"] = octets
        made[f"{name}.json"] = json.dumps(described(topic, octets), indent=2).encode() + b"\n"
    for reason, (topic, octets) in bad().items():
        made[f"malformed-{reason}.bin"] = octets
        made[f"malformed-{reason}.json"] = json.dumps({"topic": topic, "malformed": reason}, indent=2).encode() + b"\n"
    for name in ("data", "hello"):
        topic, octets = good()[name]
        made[f"websocket-{name}.bin"] = bytes([len(topic)]) + topic.encode() + octets
        twin = {"topic_octets": len(topic), "topic": topic, "frame": f"{name}.bin"}
        made[f"websocket-{name}.json"] = json.dumps(twin, indent=2).encode() + b"\n"
    return made


if __name__ == "__main__":
    VECTORS.mkdir(exist_ok=True)
    for old in VECTORS.iterdir():
        old.unlink()
    for name, octets in files().items():
        (VECTORS / name).write_bytes(octets)
