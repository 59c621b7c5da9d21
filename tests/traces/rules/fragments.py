"""Fragmentation (section 5 of docs/protocol.md)."""

from tests.traces.script import OTHER, PEER, START_NS, Trace, ack, data


def fragment(trace: Trace, first: int, octets: int, whole: int = 1000) -> None:
    inner = {"kind": "data", "epoch": PEER, "sequence": "0", "sent_ns": str(START_NS), "payload_octets": whole}
    trace.receive("fragment", "traffic/f", sequence=str(first), sent_ns=str(START_NS), octets=octets, whole=inner)


def progress(octets: int) -> dict[str, object]:
    return {
        "topic": "ack/f", "kind": "fragment_progress", "of_epoch": PEER, "of_sent_ns": str(START_NS), "octets": octets,
    }  # fmt: skip


def fragments_are_answered() -> Trace:
    trace = Trace(
        "A receiver MUST answer each fragment of a peer that does not complete the frame with fragment progress: "
        "what is there, or 0."
    )
    trace.subscribe("f")
    trace.up()
    fragment(trace, 0, 400)
    trace.transmits(progress(400))
    trace.wait(1)
    fragment(trace, 400, 400)
    trace.transmits(progress(800))
    trace.wait(1)
    fragment(trace, 800, 232)
    trace.delivers(0)
    trace.transmits(ack("f", 0), within_ms=100)
    return trace


def repeated_and_later_fragments() -> Trace:
    trace = Trace("It ignores repeated pieces, and a fragment behind a missing one.")
    trace.subscribe("f")
    trace.up()
    fragment(trace, 400, 400)
    trace.transmits(progress(0))
    trace.wait(1)
    fragment(trace, 0, 400)
    trace.transmits(progress(400))
    trace.wait(1)
    fragment(trace, 0, 400)
    trace.transmits(progress(400))
    trace.wait(1)
    fragment(trace, 800, 232)
    trace.transmits(progress(400))
    trace.delivers(within_ms=20)
    return trace


def sends_long_in_fragments() -> Trace:
    trace = Trace("A longer payload than a peer's `max_payload` MUST be sent in fragments")
    trace.up(max_payload=1_000_000)
    trace.up(OTHER)
    trace.send("f", 1_500_000, window=2**24, in_flight=2**22)
    trace.transmits({"topic": "traffic/f", "kind": "fragment", "sequence": "0"}, within_ms=5)
    trace.withholds(data("f", 0), within_ms=5)
    return trace


def gives_up_what_is_too_long() -> Trace:
    trace = Trace("that peer gives up the message", max_payload=500)
    trace.subscribe("f")
    trace.up()
    fragment(trace, 0, 400)
    trace.reports({"event": "gap", "flow": "f", "first": 0, "end": 1}, of=("gap",), within_ms=60)
    return trace


def whole_where_a_peer_does_not_repair() -> Trace:
    trace = Trace("A sender MAY fragment only while every peer that is up `repairs`.")
    trace.up(repairs=False)
    trace.send("f", 100_000, in_flight=50_000)
    trace.transmits(data("f", 0), within_ms=5)
    trace.withholds({"topic": "traffic/f", "kind": "fragment"}, within_ms=50)
    return trace
