"""Frames as vectors and traces describe them, in the words of docs/protocol.md; 64-bit integers are decimal strings."""

import json
from typing import Any

from twinlink.protocol.frames import (
    HEADER_OCTETS,
    REJECTED,
    RETRANSMIT_WORD,
    RUN_AT,
    RUN_HEAD,
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
    parse_run,
    refused_body,
)

Description = dict[str, Any]


def epoch_of(text: str) -> int:
    return int(text, 16)


def zeros_or_hex(description: Description) -> bytes:
    """A payload: ``payload_hex``, or so many zeros as ``payload_octets`` says."""
    return bytes.fromhex(description.get("payload_hex", "")) or bytes(int(description.get("payload_octets", 0)))


def composed(description: Description) -> bytes:
    """The frame that a description is of; what it leaves out is 0, a hello in the compact form that twinlink writes."""
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
    elif kind is Kind.RUN:
        body = RUN_HEAD.pack(description["count"], description["payload_octets"])
        body += bytes.fromhex(description.get("payloads_hex", "")) or bytes(
            description["count"] * description["payload_octets"]
        )
    elif kind is Kind.FRAGMENT:
        body = zeros_or_hex(description)
        if "whole" in description:
            at = int(description["sequence"])
            body = composed(description["whole"])[at : at + number["octets"]]
    elif kind is Kind.FRAGMENT_PROGRESS:
        body = fragment_progress_body(of_epoch, int(description["of_sent_ns"]), number["octets"])
    elif kind is Kind.REFUSED:
        body = refused_body(of_epoch, number["end"])
    elif kind is Kind.HELLO:
        body = json.dumps(description["body"], separators=(",", ":")).encode()
    else:
        body = b""
    sequence, sent_ns = int(description.get("sequence", 0)), int(description.get("sent_ns", 0))
    return frame(kind, epoch_of(description["epoch"]), sequence, sent_ns, body)


def described(topic: str, octets: bytes) -> Description:
    """What a frame says: all that `composed` needs."""
    kind, epoch, sequence, sent_ns = parse(octets)
    description: Description = {
        "topic": topic,
        "kind": kind.name.lower(),
        "epoch": f"{epoch:016x}",
        "sequence": str(sequence),
        "sent_ns": str(sent_ns),
    }
    body = octets[HEADER_OCTETS:]
    if kind in (Kind.DATA, Kind.RETRANSMIT, Kind.FRAGMENT):
        description["payload_hex"] = body.hex()
    elif kind is Kind.ACK:
        of_epoch, consumed, records = parse_ack(octets)
        description |= {"of_epoch": f"{of_epoch:016x}", "consumed": str(consumed)}
        description["records"] = [
            {"sequence": str(number), "t1_ns": str(t1_ns), "t2_ns": str(t2_ns)} for number, t1_ns, t2_ns in records
        ]
    elif kind is Kind.ACK_RANGE:
        of_epoch, consumed, row, t2_ns = parse_ack_range(octets)
        description |= {"of_epoch": f"{of_epoch:016x}", "consumed": str(consumed)}
        description |= {"first": str(row.start), "end": str(row.stop), "t2_ns": str(t2_ns)}
    elif kind is Kind.NAK:
        of_epoch, known, missing = parse_nak(octets)
        description |= {"of_epoch": f"{of_epoch:016x}", "known": str(known), "ranges": _texts(missing)}
    elif kind is Kind.ABANDONED:
        reason, ranges = parse_abandoned(octets)
        description |= {"reason": reason.name.lower(), "ranges": _texts(ranges)}
    elif kind is Kind.BUNDLE:
        description["frames"] = [
            described(
                topic, frame(Kind.RETRANSMIT if word == RETRANSMIT_WORD else Kind.DATA, epoch, number, at_ns, payload)
            )
            for word, number, at_ns, payload in zip(*parse_bundle(octets, epoch), strict=True)
        ]
    elif kind is Kind.RUN:
        count, size = parse_run(octets, sequence)
        description |= {"count": count, "payload_octets": size, "payloads_hex": octets[RUN_AT:].hex()}
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


def observed(topic: str, octets: bytes) -> list[Description]:
    """What a frame says, with what traces expect by; a bundle as its messages, which may share a frame or not."""
    description = described(topic, octets)
    frames = description.get("frames")
    return [_with_summary(one, frames is not None) for one in ([description] if frames is None else frames)]


def _with_summary(description: Description, bundled: bool) -> Description:
    kind = description["kind"]
    octets = len(description.get("payload_hex", "")) // 2
    if kind in {"data", "retransmit"}:
        return {**description, "payload_octets": octets, "bundled": bundled}
    if kind == "fragment":
        return {**description, "octets": octets}
    if kind == "ack":
        by_t2 = [(one["sequence"], int(one["t2_ns"])) for one in description["records"]]
        acknowledges = [sequence for sequence, t2_ns in by_t2 if t2_ns != REJECTED]
        return {
            **description,
            "acknowledges": acknowledges,
            "rejects": [one for one, t2_ns in by_t2 if t2_ns == REJECTED],
        }
    if kind == "ack_range":
        row = range(int(description["first"]), int(description["end"]))
        return {**description, "acknowledges": list(map(str, row))}
    return description


def _texts(ranges: list[tuple[int, int]]) -> list[list[str]]:
    return [[str(first), str(end)] for first, end in ranges]
