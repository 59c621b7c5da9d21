"""Makes docs/vectors: frames as binary files, each beside a JSON twin that says what it means.

``python -m tests.wire.make_vectors``, from the checkout's root; the outcome is committed and always the same.
"""

import json
import struct
from pathlib import Path
from typing import Any

from twinlink.protocol.frames import (
    REJECTED,
    RETRANSMIT_WORD,
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
    parse,
    parse_abandoned,
    parse_ack,
    parse_ack_range,
    parse_bundle,
    parse_fragment_progress,
    parse_nak,
    parse_refused,
    refused_body,
)

VECTORS = Path(__file__).parents[2] / "docs" / "vectors"
EPOCH, PEER = 0x0123456789ABCDEF, 0xFEDCBA9876543210
SENT_NS = 1_790_000_000_123_456_789
KINDS = {kind.name.lower(): kind for kind in Kind}


def described(topic: str, octets: bytes) -> dict[str, Any]:
    """What a good frame says, in JSON's terms."""
    kind, epoch, sequence, sent_ns = parse(octets)
    description: dict[str, Any] = {
        "topic": topic,
        "kind": kind.name.lower(),
        "epoch": f"{epoch:016x}",
        "sequence": str(sequence),
        "sent_ns": str(sent_ns),
    }
    body = octets[32:]
    if kind in {Kind.DATA, Kind.RETRANSMIT}:
        description["payload_hex"] = body.hex()
    elif kind is Kind.FRAGMENT:
        description["octets_hex"] = body.hex()
    elif kind is Kind.FRAGMENT_PROGRESS:
        of_epoch, of_ns, octets_there = parse_fragment_progress(octets)
        description |= {"of_epoch": f"{of_epoch:016x}", "of_sent_ns": str(of_ns), "octets_there": str(octets_there)}
    elif kind is Kind.REFUSED:
        of_epoch, end = parse_refused(octets)
        description |= {"of_epoch": f"{of_epoch:016x}", "end": str(end)}
    elif kind is Kind.BUNDLE:
        description["frames_hex"] = [
            frame(Kind.RETRANSMIT if word == RETRANSMIT_WORD else Kind.DATA, epoch, number, at_ns, payload).hex()
            for word, number, at_ns, payload in zip(*parse_bundle(octets, epoch), strict=True)
        ]
    elif kind is Kind.ACK:
        acked_epoch, consumed, records = parse_ack(octets)
        description["acked_epoch"], description["consumed"] = f"{acked_epoch:016x}", str(consumed)
        description["records"] = [
            dict(zip(("sequence", "t1_ns", "t2_ns"), map(str, record), strict=True)) for record in records
        ]
    elif kind is Kind.ACK_RANGE:
        acked_epoch, consumed, row, t2_ns = parse_ack_range(octets)
        description["acked_epoch"], description["consumed"] = f"{acked_epoch:016x}", str(consumed)
        description |= {"first": str(row.start), "end": str(row.stop), "t2_ns": str(t2_ns)}
    elif kind is Kind.NAK:
        nak_epoch, known, missing = parse_nak(octets)
        description["nak_epoch"], description["known"] = f"{nak_epoch:016x}", str(known)
        description["missing"] = [[str(first), str(end)] for first, end in missing]
    elif kind is Kind.ABANDONED:
        reason, ranges = parse_abandoned(octets)
        description["reason"] = reason.name.lower()
        description["ranges"] = [[str(first), str(end)] for first, end in ranges]
    elif kind is Kind.HELLO:
        description["body"] = json.loads(body)
        Hello.decode(body)
    return description


def composed(description: dict[str, Any]) -> bytes:
    """The frame that a description is of; a hello in the compact form that twinlink writes."""
    kind = KINDS[description["kind"]]
    if kind in {Kind.DATA, Kind.RETRANSMIT}:
        body = bytes.fromhex(description["payload_hex"])
    elif kind is Kind.FRAGMENT:
        body = bytes.fromhex(description["octets_hex"])
    elif kind is Kind.FRAGMENT_PROGRESS:
        of_epoch, of_ns = int(description["of_epoch"], 16), int(description["of_sent_ns"])
        body = fragment_progress_body(of_epoch, of_ns, int(description["octets_there"]))
    elif kind is Kind.REFUSED:
        body = refused_body(int(description["of_epoch"], 16), int(description["end"]))
    elif kind is Kind.BUNDLE:
        body = bytes.fromhex("".join(description["frames_hex"]))
    elif kind is Kind.ACK:
        records = [(int(r["sequence"]), int(r["t1_ns"]), int(r["t2_ns"])) for r in description["records"]]
        body = ack_body(int(description["acked_epoch"], 16), int(description["consumed"]), records)
    elif kind is Kind.ACK_RANGE:
        numbers = [int(description[name]) for name in ("consumed", "first", "end", "t2_ns")]
        body = ack_range_body(int(description["acked_epoch"], 16), *numbers)
    elif kind is Kind.NAK:
        missing = [(int(first), int(end)) for first, end in description["missing"]]
        body = nak_body(int(description["nak_epoch"], 16), int(description["known"]), missing)
    elif kind is Kind.ABANDONED:
        ranges = [(int(first), int(end)) for first, end in description["ranges"]]
        body = abandoned_body(AbandonReason[description["reason"].upper()], ranges)
    elif kind is Kind.HELLO:
        body = json.dumps(description["body"], separators=(",", ":")).encode()
    else:
        body = b""
    epoch, sequence = int(description["epoch"], 16), int(description["sequence"])
    return frame(kind, epoch, sequence, int(description["sent_ns"]), body)


def good() -> dict[str, tuple[str, bytes]]:
    """Name -> topic, frame."""
    record = (41, SENT_NS, SENT_NS + 870_000)
    later = [(42 + n, SENT_NS + n * 500_000, SENT_NS + 870_000 + n * 500_000) for n in range(3)]
    hello = Hello("gnb-1", {PEER: 3}, {"spectrum": 41, "telemetry": 0}).encode()
    repairing = Hello("gnb-1", {PEER: 2**63 - 1}, {"spectrum": 41}, True, frozenset(["telemetry"])).encode()
    behind = Hello("gnb-1", {PEER: 3}, {"spectrum": 41}, behind=True).encode()
    placing = Hello("gnb-1", {PEER: 3}, {"spectrum": 41}, True, start_sequences={PEER: {"spectrum": 17}}).encode()
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
        "kind": (topic, data[:3] + b"\x0d" + data[4:]),
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
