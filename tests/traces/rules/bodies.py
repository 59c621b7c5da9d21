"""Bodies of frames (section 3 of docs/protocol.md)."""

from tests.traces.script import HELLO, NODE, OTHER, PEER, PEER_EVENTS, Trace, ack, data, nak, retransmit, run


def reads_ack_range() -> Trace:
    trace = Trace("A sender that makes bundles MUST read it.")
    trace.up()
    for _ in range(3):
        trace.send("f")
    trace.wait(1)
    trace.receive("ack_range", "ack/f", of_epoch=NODE, consumed="3", first="0", end="3", t2_ns=str(trace.now_ns))
    trace.wait(1)
    trace.nak("f", 3, (0, 3))
    trace.withholds({"topic": "traffic/f", "kind": "retransmit"}, within_ms=10)  # it has them
    return trace


def reads_bundle() -> Trace:
    trace = Trace("**Bundle.** Data and retransmit frames of the bundle's epoch")
    trace.subscribe("f")
    trace.up()
    frames = [
        {"kind": "data", "epoch": PEER, "sequence": str(one), "sent_ns": str(trace.now_ns), "payload_octets": 4}
        for one in range(3)
    ]
    trace.receive("bundle", "traffic/f", frames=frames)
    trace.delivers(0, 1, 2)
    trace.transmits(ack("f", 0, 1, 2), within_ms=100)
    return trace


def reads_run() -> Trace:
    trace = Trace("Each is what a data frame with these fields is.")
    trace.subscribe("f")
    trace.up()
    trace.receive("run", "traffic/f", sequence="0", count=3, payloads_hex="0102030405060708090a0b0c", payload_octets=4)
    trace.delivers(0, 1, 2)
    trace.transmits(ack("f", 0, 1, 2), within_ms=100)
    return trace


def run_behind_a_gap() -> Trace:
    trace = Trace("Each is what a data frame with these fields is.")
    trace.subscribe("f")
    trace.up()
    trace.receive("run", "traffic/f", sequence="2", count=3, payload_octets=4)
    trace.delivers()
    trace.transmits(nak("f", (0, 2)))
    trace.wait(5)
    trace.receive("run", "traffic/f", sequence="0", count=4, payload_octets=4)
    trace.delivers(0, 1, 2, 3, 4)
    return trace


def run_of_a_batch() -> Trace:
    trace = Trace(
        "A sender MAY send a run only while every peer that is up `repairs` on this flow and says `runs`.",
        "and what is missing of it is retransmitted in retransmit frames.",
    )
    trace.up(runs=True)
    trace.send("f", count=5)
    trace.transmits({**run("f", 0, 5), "payload_octets": 4}, within_ms=5)
    trace.wait(5)
    trace.nak("f", 5, (1, 3))
    trace.transmits(retransmit("f", 1), retransmit("f", 2), within_ms=5)
    return trace


def no_run_where_a_peer_does_not_read_it() -> Trace:
    trace = Trace("A sender MAY send a run only while every peer that is up `repairs` on this flow and says `runs`.")
    trace.up()
    trace.send("f", count=3)
    trace.withholds(run("f", 0, 3), within_ms=5)
    trace.transmits(data("f", 0), data("f", 1), data("f", 2), within_ms=5)
    return trace


def says_that_it_reads_runs() -> Trace:
    trace = Trace("| `runs` | `true`: it reads runs. Absent: it does not |")
    trace.transmits({**HELLO, "body": {"runs": True}}, within_ms=60)
    return trace


def drops_bundle_of_another_epoch() -> Trace:
    trace = Trace("**Bundle.** Data and retransmit frames of the bundle's epoch")
    trace.subscribe("f")
    trace.up()
    frames = [{"kind": "data", "epoch": OTHER, "sequence": "0", "sent_ns": str(trace.now_ns), "payload_octets": 4}]
    trace.receive("bundle", "traffic/f", frames=frames)
    trace.delivers()
    trace.reports({"event": "malformed", "reason": "bundle"}, of=("malformed",))
    return trace


def fragment_of_a_fragment() -> Trace:
    trace = Trace("which has a header of its own and MUST NOT be a fragment.")
    trace.subscribe("f")
    trace.up()
    inner = {"kind": "data", "epoch": PEER, "sequence": "0", "sent_ns": str(trace.now_ns), "payload_octets": 40}
    fragment = {"kind": "fragment", "epoch": PEER, "sent_ns": str(trace.now_ns), "sequence": "0", "whole": inner}
    trace.receive("fragment", "traffic/f", sequence="0", octets=104, whole={**fragment, "octets": 72})
    trace.delivers()
    trace.reports({"event": "malformed", "reason": "fragment"}, of=("malformed",))
    return trace


def no_bundle_where_a_peer_does_not_repair() -> Trace:
    trace = Trace("A sender MAY bundle only while every peer that is up `repairs` on this flow.")
    trace.up(repairs=False)
    for _ in range(5):
        trace.send("f", 4000, in_flight=10_000)
    trace.wait(1)
    trace.ack("f", 0, 1, consumed=2)
    trace.transmits(data("f", 2, bundled=False), data("f", 3, bundled=False), within_ms=5)
    return trace


def says_where_its_flows_stand() -> Trace:
    trace = Trace("| `flows` | for each flow that this node has sent on: the next sequence to leave |")
    trace.up()
    for _ in range(3):
        trace.send("f")
    trace.transmits({**HELLO, "body": {"flows": {"f": 3}}}, within_ms=210)
    return trace


def says_what_it_owes() -> Trace:
    trace = Trace(
        "| `since` | for peers that came up, by epoch, until their hellos confirm one that said it: "
        "for each flow, the first sequence owed to them."
    )
    says = {**HELLO, "body": {"since": {PEER: {"f": 1}}}}
    trace.send("f")
    trace.up()
    trace.ms -= 1
    trace.transmits(says)
    trace.wait(1)
    trace.hello()
    trace.wait(1)
    trace.withholds(says, within_ms=500)
    return trace


def says_what_it_owes_again() -> Trace:
    """To a peer that was down: what it confirms when it comes up again left after the hellos that said it."""
    trace = Trace(
        "| `since` | for peers that came up, by epoch, until their hellos confirm one that said it: "
        "for each flow, the first sequence owed to them."
    )
    trace.send("f")
    trace.up()
    trace.wait(100)
    trace.hello(confirms=None)
    trace.wait(100)
    trace.hello()
    trace.transmits({**HELLO, "body": {"since": {PEER: {"f": 1}}}})
    return trace


def says_which_flows_it_does_not_repair() -> Trace:
    trace = Trace("| `detect` | flows on which it does not repair although it `repairs` |")
    trace.up()
    trace.send("f", reliability="detect")
    trace.transmits({**HELLO, "body": {"detect": ["f"]}}, within_ms=210)
    return trace


def says_what_it_takes() -> Trace:
    trace = Trace(
        "| `max_payload` | octets of the longest payload that it takes. Absent: 16,777,216 |", max_payload=500
    )
    trace.transmits({**HELLO, "body": {"max_payload": 500}}, within_ms=60)
    return trace


def unknown_members() -> Trace:
    trace = Trace("Unknown members MUST be ignored.")
    trace.up(later=[{"version": 2}], another=None)
    trace.ms -= 1
    trace.reports({"event": "peer_up", "node": "peer"}, of=PEER_EVENTS)
    return trace
