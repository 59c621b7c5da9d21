"""Frames as traces describe them: JSON with the words of docs/protocol.md; 64-bit integers as decimal strings."""

import json
from typing import Any

from twinlink.protocol.frames import (
    HEADER_OCTETS,
    RETRANSMIT_WORD,
    AbandonReason,
    Hello,
    Kind,
    abandoned_body,
    ack_body,
    ack_range_body,
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

Description = dict[str, Any]


def epoch_of(text: str) -> int:
    return int(text, 16)


def zeros_or_hex(description: Description) -> bytes:
    """A payload: ``payload_hex``, or so many zeros as ``payload_octets`` says."""
    return bytes.fromhex(description.get("payload_hex", "")) or bytes(int(description.get("payload_octets", 0)))


def composed(description: Description) -> bytes:
    """The frame that a description is of; what it leaves out is 0."""
    if "raw_hex" in description:
        return bytes.fromhex(description["raw_hex"])
    kind = Kind[description["kind"].upper()]
    of_epoch = epoch_of(description.get("of_epoch", "0"))
    number = {key: int(description.get(key, 0)) for key in ("consumed", "known", "first", "end", "t2_ns", "octets")}
    ranges = [(int(first), int(end)) for first, end in description.get("ranges", ())]
    if kind in (Kind.DATA, Kind.RETRANSMIT):
        body = zeros_or_hex(description)
    elif kind is Kind.ACK:
        records = [(int(one["sequence"]), int(one["t1_ns"]), int(one["t2_ns"])) for one in description["records"]]
        body = ack_body(of_epoch, number["consumed"], records)
    elif kind is Kind.ACK_RANGE:
        body = ack_range_body(of_epoch, *(number[key] for key in ("consumed", "first", "end", "t2_ns")))
    elif kind is Kind.NAK:
        body = nak_body(of_epoch, number["known"], ranges)
    elif kind is Kind.ABANDONED:
        body = abandoned_body(AbandonReason[description["reason"].upper()], ranges)
    elif kind is Kind.BUNDLE:
        body = b"".join(composed(one) for one in description["frames"])
    elif kind is Kind.FRAGMENT:
        whole, sequence = composed(description["whole"]), int(description["sequence"])
        body = whole[sequence : sequence + number["octets"]]
    elif kind is Kind.FRAGMENT_PROGRESS:
        body = fragment_progress_body(of_epoch, int(description["of_sent_ns"]), number["octets"])
    elif kind is Kind.REFUSED:
        body = refused_body(of_epoch, number["end"])
    elif kind is Kind.HELLO:
        body = json.dumps(description["body"]).encode()
    else:
        body = b""
    sequence, sent_ns = int(description.get("sequence", 0)), int(description.get("sent_ns", 0))
    return frame(kind, epoch_of(description["epoch"]), sequence, sent_ns, body)


def described(topic: str, octets: bytes) -> list[Description]:
    """What a frame says; a bundle is described by what is in it, as messages may share a frame or not."""
    kind, epoch, sequence, sent_ns = parse(octets)
    if kind is Kind.BUNDLE:
        words = {True: Kind.RETRANSMIT, False: Kind.DATA}
        return [
            {
                **_described(
                    topic, words[word == RETRANSMIT_WORD], epoch, number, at_ns, bytes(HEADER_OCTETS) + payload
                ),
                "bundled": True,
            }
            for word, number, at_ns, payload in zip(*parse_bundle(octets, epoch), strict=True)
        ]
    return [_described(topic, kind, epoch, sequence, sent_ns, octets)]


def _described(topic: str, kind: Kind, epoch: int, sequence: int, sent_ns: int, octets: bytes) -> Description:
    description: Description = {
        "topic": topic,
        "kind": kind.name.lower(),
        "epoch": f"{epoch:016x}",
        "sequence": str(sequence),
        "sent_ns": str(sent_ns),
    }
    body = octets[32:]
    if kind in (Kind.DATA, Kind.RETRANSMIT):
        description |= {"payload_octets": len(body), "payload_hex": body.hex(), "bundled": False}
    elif kind is Kind.ACK:
        of_epoch, consumed, records = parse_ack(octets)
        description |= {"of_epoch": f"{of_epoch:016x}", "consumed": str(consumed)}
        description["records"] = [
            {"sequence": str(number), "t1_ns": str(t1_ns), "t2_ns": str(t2_ns)} for number, t1_ns, t2_ns in records
        ]
        description["acknowledges"] = [str(number) for number, _, t2_ns in records if t2_ns]
        description["rejects"] = [str(number) for number, _, t2_ns in records if not t2_ns]
    elif kind is Kind.ACK_RANGE:
        of_epoch, consumed, row, t2_ns = parse_ack_range(octets)
        description |= {"of_epoch": f"{of_epoch:016x}", "consumed": str(consumed), "t2_ns": str(t2_ns)}
        description |= {"first": str(row.start), "end": str(row.stop), "acknowledges": [str(one) for one in row]}
    elif kind is Kind.NAK:
        of_epoch, known, missing = parse_nak(octets)
        description |= {"of_epoch": f"{of_epoch:016x}", "known": str(known), "ranges": _texts(missing)}
    elif kind is Kind.ABANDONED:
        reason, ranges = parse_abandoned(octets)
        description |= {"reason": reason.name.lower(), "ranges": _texts(ranges)}
    elif kind is Kind.FRAGMENT:
        description["octets"] = len(body)
    elif kind is Kind.FRAGMENT_PROGRESS:
        of_epoch, of_sent_ns, received = parse_fragment_progress(octets)
        description |= {"of_epoch": f"{of_epoch:016x}", "of_sent_ns": str(of_sent_ns), "octets": received}
    elif kind is Kind.REFUSED:
        of_epoch, end = parse_refused(octets)
        description |= {"of_epoch": f"{of_epoch:016x}", "end": str(end)}
    elif kind is Kind.HELLO:
        description["body"] = json.loads(body)
        Hello.decode(body)
    return description


def _texts(ranges: list[tuple[int, int]]) -> list[list[str]]:
    return [[str(first), str(end)] for first, end in ranges]
