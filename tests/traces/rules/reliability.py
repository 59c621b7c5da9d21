"""Numbers, acks, naks, abandonment and probes (section 5 of docs/protocol.md)."""

from tests.traces.script import HELLO, MS, NODE, OTHER, PEER, START_NS, Trace, abandoned, ack, data, nak, retransmit


def numbers_from_zero() -> Trace:
    trace = Trace("Data MUST be numbered from 0 on each flow and sent in order.")
    trace.up()
    for _ in range(3):
        trace.send("f")
    trace.send("g")
    trace.transmits(data("f", 0), data("f", 1), data("f", 2), data("g", 0), within_ms=2)
    return trace


def start_by_flows() -> Trace:
    trace = Trace("A receiver expects of a new session the number that its first hello gave in `flows` (0 if none)")
    trace.subscribe("f")
    trace.subscribe("g")
    trace.up(flows={"f": 5})
    trace.data("f", 6)
    trace.transmits(nak("f", (5, 6)))
    trace.data("g", 1)
    trace.transmits(nak("g", (0, 1)))
    trace.delivers()
    return trace


def detect_begins_where_since_says() -> Trace:
    trace = Trace("or that `since` gives")
    trace.subscribe("f")
    trace.hello(confirms=None, detect=["f"])
    trace.wait(1)
    trace.hello(detect=["f"], since={NODE: {"f": 5}})
    trace.wait(1)
    trace.data("f", 7)
    trace.delivers(7)
    trace.reports({"event": "gap", "flow": "f", "first": 5, "end": 7}, of=("gap",))
    return trace


def start_by_since() -> Trace:
    trace = Trace("or that `since` gives")
    trace.subscribe("f")
    trace.hello(confirms=None)
    trace.wait(1)
    trace.hello(since={NODE: {"f": 7}})
    trace.wait(1)
    trace.data("f", 7)
    trace.delivers(7)
    trace.reports(of=("gap",))
    trace.withholds({"topic": "ack/f", "kind": "nak"}, within_ms=50)
    return trace


def duplicate_is_acknowledged_again() -> Trace:
    trace = Trace("one seen before is a duplicate, acknowledged again and not delivered")
    trace.subscribe("f")
    trace.up()
    trace.data("f", 0)
    trace.delivers(0)
    trace.transmits(ack("f", 0), within_ms=100)
    trace.wait(1)
    trace.data("f", 0)
    trace.delivers()
    trace.transmits(ack("f", 0), within_ms=100)
    return trace


def every_message_is_acknowledged() -> Trace:
    trace = Trace("Every data message of a peer MUST be acknowledged, alone or with others")
    trace.subscribe("f")
    trace.up()
    for sequence in range(3):
        trace.data("f", sequence)
        trace.transmits(ack("f", sequence), within_ms=100)
        trace.wait(1)
    return trace


def acks_wait_for_nothing() -> Trace:
    trace = Trace("Every data message of a peer MUST be acknowledged, alone or with others", "and within 100 ms")
    trace.listen("f")
    trace.up()
    trace.data("f", 0)
    trace.with_more_behind()  # but nothing comes
    trace.transmits(ack("f", 0), within_ms=100)
    return trace


def abandoned_is_not_acknowledged() -> Trace:
    trace = Trace("unless an abandoned frame had named it before it arrived")
    trace.subscribe("f")
    trace.up()
    trace.data("f", 0)
    trace.wait(1)
    trace.abandoned("f", 2, (1, 2))
    trace.reports({"event": "gap", "first": 1, "end": 2}, of=("gap",))
    trace.wait(1)
    trace.data("f", 1, kind="retransmit")
    trace.delivers()
    trace.withholds(ack("f", 1), within_ms=100)
    return trace


def acks_for_another() -> Trace:
    trace = Trace("An ack whose acked epoch is not the node's own is for another connector.")
    trace.up()
    trace.send("f")
    trace.wait(1)
    trace.receive("ack", "ack/f", of_epoch=OTHER, consumed="1", records=[{"sequence": "0", "t1_ns": "0", "t2_ns": "1"}])
    trace.receive("nak", "ack/f", of_epoch=OTHER, known="1", ranges=[["0", "1"]])
    trace.withholds(retransmit("f", 0), within_ms=1)
    trace.wait(2)
    trace.nak("f", 1, (0, 1))
    trace.transmits(retransmit("f", 0), within_ms=5)
    return trace


def own_messages() -> Trace:
    trace = Trace("A node MUST NOT acknowledge its own messages")
    trace.subscribe("f")
    trace.up()
    trace.data("f", 0, NODE)
    trace.delivers()
    trace.withholds({"topic": "ack/f"}, within_ms=100)
    trace.reports({"event": "malformed", "reason": "reflected"}, of=("malformed",))
    return trace


def own_hello() -> Trace:
    trace = Trace("a frame of its own epoch, which some transports deliver to their sender, is dropped and counted")
    trace.wait(60)
    trace.hello(NODE, confirms=None)
    trace.reports({"event": "malformed", "reason": "reflected"}, of=("malformed", "peer_up"), within_ms=20)
    return trace


def nak_at_once() -> Trace:
    trace = Trace(
        "A receiver that finds a gap MUST send a nak for the new range at once",
        "deliver nothing behind it before it is filled or abandoned",
    )
    trace.subscribe("f")
    trace.up()
    trace.data("f", 0)
    trace.delivers(0)
    trace.wait(1)
    trace.data("f", 3)
    trace.transmits(nak("f", (1, 3), known="1"))
    trace.delivers(within_ms=50)
    trace.wait(51)
    trace.data("f", 1, kind="retransmit")
    trace.delivers(1)
    trace.wait(1)
    trace.data("f", 2, kind="retransmit")
    trace.delivers(2, 3)
    return trace


def nothing_overtakes_a_gap() -> Trace:
    trace = Trace("deliver nothing behind it before it is filled or abandoned")
    trace.subscribe("f")
    trace.up()
    trace.data("f", 0)
    trace.data("f", 2)
    trace.data("f", 3)
    frames = [
        {"kind": "data", "epoch": PEER, "sequence": str(one), "sent_ns": str(trace.now_ns), "payload_octets": 4}
        for one in (4, 5)
    ]
    trace.receive("bundle", "traffic/f", frames=frames)
    trace.delivers(0)
    trace.wait(1)
    trace.data("f", 1, kind="retransmit")
    trace.delivers(1, 2, 3, 4, 5)
    return trace


def nak_for_the_new_range_only() -> Trace:
    trace = Trace("A receiver that finds a gap MUST send a nak for the new range at once")
    trace.subscribe("f")
    trace.up()
    trace.data("f", 1)
    trace.transmits(nak("f", (0, 1)))
    trace.wait(1)
    trace.data("f", 4)
    trace.transmits(nak("f", (2, 4), known="0"))
    trace.wait(1)
    trace.data("f", 5)
    trace.withholds({"topic": "ack/f", "kind": "nak"}, within_ms=20)
    return trace


def acks_before_nak() -> Trace:
    trace = Trace("Acks of what has arrived MUST leave before a nak")
    trace.subscribe("f")
    trace.up()
    frames = [
        {"kind": "data", "epoch": PEER, "sequence": str(one), "sent_ns": str(trace.now_ns), "payload_octets": 4}
        for one in (0, 1, 4)
    ]
    trace.receive("bundle", "traffic/f", frames=frames)
    trace.transmits(ack("f", 0, 1), nak("f", (2, 4)))
    return trace


def batched_acks_before_nak() -> Trace:
    trace = Trace("Acks of what has arrived MUST leave before a nak")
    trace.listen("f")
    trace.up()
    for sequence in (0, 1, 3):
        trace.data("f", sequence)
        trace.with_more_behind()
    trace.transmits(ack("f", 0, 1), nak("f", (2, 3)))
    return trace


def too_many_ranges() -> Trace:
    trace = Trace("With more than 256 ranges, it is at most the first that is left out.")
    trace.subscribe("f")
    trace.up()
    for number in range(300):
        trace.data("f", 2 * number + 1)
    trace.wait(1)
    trace.abandoned("f", 600)
    named = [(2 * one, 2 * one + 1) for one in range(256)]
    trace.transmits(nak("f", *named, known="512"))
    return trace


def nak_acknowledges_below_known() -> Trace:
    trace = Trace("**known** acknowledges: everything below it outside the ranges has arrived or was abandoned.")
    trace.up()
    for _ in range(3):
        trace.send("f")
    trace.wait(1)
    trace.nak("f", 3, (1, 2))
    trace.transmits(retransmit("f", 1), within_ms=5)
    trace.wait(6)
    trace.nak("f", 3, (0, 3))
    trace.withholds(retransmit("f", 0), within_ms=5)
    return trace


def retransmits_what_is_named() -> Trace:
    trace = Trace("The sender retransmits what it still has of the ranges")
    trace.up()
    for _ in range(4):
        trace.send("f")
    trace.wait(1)
    trace.nak("f", 1, (1, 3))
    resent = [retransmit("f", number, sent_ns=str(trace.now_ns - MS)) for number in (1, 2)]
    trace.transmits(*resent, within_ms=5)
    trace.withholds({"topic": "traffic/f", "kind": "retransmit"}, within_ms=5)
    return trace


def names_what_is_evicted() -> Trace:
    trace = Trace("names the rest in an abandoned frame")
    trace.up()
    trace.wait(1600)  # silent: what is kept for it gives up its place
    for _ in range(4):
        trace.send("f", 4000, retention=10_000)
    trace.wait(60)
    trace.hello()
    trace.wait(60)
    trace.hello()
    trace.wait(10)
    trace.nak("f", 4, (0, 4))
    trace.transmits(abandoned("f", (0, 2), reason="evicted"), within_ms=1000)
    return trace


def except_what_was_rejected() -> Trace:
    trace = Trace("except what this peer has rejected")
    trace.up()
    trace.send("f")
    trace.wait(1)
    trace.ack("f", 0, consumed=1, t2_ns=0)
    trace.reports({"event": "lost", "flow": "f", "first": 0, "end": 1}, of=("lost",), within_ms=210)
    trace.wait(211)
    trace.hello()
    trace.nak("f", 1, (0, 1))
    trace.withholds(retransmit("f", 0), within_ms=50)
    trace.transmits(abandoned("f", (0, 1)), within_ms=50)
    return trace


def rejected_but_kept_for_another() -> Trace:
    trace = Trace("except what this peer has rejected")
    trace.up()
    trace.up(OTHER)
    trace.send("f")
    trace.wait(1)
    trace.ack("f", 0, consumed=1, t2_ns=0)
    trace.wait(1)
    trace.nak("f", 1, (0, 1))
    trace.withholds(retransmit("f", 0), within_ms=50)
    trace.wait(51)
    trace.nak("f", 1, (0, 1), peer=OTHER)
    trace.transmits(retransmit("f", 0), within_ms=5)
    return trace


def stray_retransmission() -> Trace:
    trace = Trace(
        "A receiver drops a retransmission that it has, or from a session that has sent it nothing on this flow."
    )
    trace.subscribe("f")
    trace.up()
    trace.data("f", 3, kind="retransmit")
    trace.delivers(within_ms=20)
    trace.withholds({"topic": "ack/f"}, within_ms=20)
    return trace


def abandoned_is_a_gap() -> Trace:
    trace = Trace("The receiver reports each named message that it lacks as a gap")
    trace.subscribe("f")
    trace.up()
    trace.data("f", 0)
    trace.data("f", 3)
    trace.wait(1)
    trace.abandoned("f", 4, (1, 3))
    trace.reports({"event": "gap", "flow": "f", "first": 1, "end": 3}, of=("gap",))
    trace.delivers(3)
    trace.withholds({"topic": "ack/f", "kind": "nak"}, within_ms=20)
    return trace


def conflated_is_no_gap() -> Trace:
    trace = Trace("(conflated ones it only counts)")
    trace.subscribe("f")
    trace.up()
    trace.data("f", 0)
    trace.data("f", 3)
    trace.wait(1)
    trace.abandoned("f", 4, (1, 3), reason="conflated")
    trace.reports(of=("gap",))
    trace.delivers(3)
    return trace


def abandoned_shows_what_is_missing() -> Trace:
    trace = Trace("It sends a nak when something is newly missing that the frame does not name.")
    trace.subscribe("f")
    trace.up()
    trace.data("f", 0)
    trace.wait(1)
    trace.abandoned("f", 4, (1, 2))
    trace.transmits(nak("f", (2, 4), known="4"))
    return trace


def probe_is_answered() -> Trace:
    trace = Trace(
        "The receiver MUST answer with a nak of all that is missing, even if that is nothing, and an ack that repeats "
        "`consumed`"
    )
    trace.subscribe("f")
    trace.up()
    trace.data("f", 0)
    trace.wait(150)
    trace.hello()
    trace.abandoned("f", 1)
    trace.transmits(nak("f", known="1"))
    trace.transmits({"topic": "ack/f", "kind": "ack", "consumed": "1"}, within_ms=100)
    trace.wait(1)
    trace.abandoned("f", 3)
    trace.transmits(nak("f", (1, 3), known="3"))
    return trace


def probes_for_an_ack() -> Trace:
    trace = Trace("A sender probes after 200 ms without one.")
    trace.up()
    trace.send("f")
    trace.stay_up(150)
    trace.transmits({"topic": "traffic/f", "kind": "abandoned", "ranges": [], "sequence": "1"}, within_ms=300)
    return trace


def probes_when_hellos_were_lost() -> Trace:
    trace = Trace(
        "and when hellos were lost: its number (in ns) is more than 300 ms above the one before",
        "Then messages may be lost too: probe.",
    )
    trace.up()
    trace.wait(302)
    trace.send("f")
    trace.wait(1)
    trace.hello()
    trace.transmits({"topic": "traffic/f", "kind": "abandoned", "ranges": []})
    trace.transmits(HELLO)
    return trace


def probes_when_its_own_hellos_were_lost() -> Trace:
    trace = Trace(
        "or the number that it confirms more than 600 ms above the last one", "messages may be lost too: probe"
    )
    trace.up()
    number = (START_NS + trace.ms * MS) % 2**50 - MS
    for _ in range(7):
        trace.wait(100)
        trace.hello(confirms=number)
    trace.wait(1)
    trace.send("f")
    trace.wait(1)
    trace.hello()
    trace.transmits({"topic": "traffic/f", "kind": "abandoned", "ranges": []})
    trace.transmits(HELLO)
    return trace


def session_end_leaves_gaps() -> Trace:
    trace = Trace(
        "A session that ends for good (bye, successor, 120 s of suspension) leaves its missing messages as gaps."
    )
    trace.subscribe("f")
    trace.up()
    trace.data("f", 0)
    trace.data("f", 2)
    trace.wait(1)
    trace.receive("bye", "traffic/_link")
    trace.reports({"event": "gap", "flow": "f", "first": 1, "end": 2}, of=("gap",))
    trace.delivers(2)
    return trace


def detect_reports_gaps() -> Trace:
    trace = Trace(
        "In `detect` a probe marks the end of what was sent: the receiver reports what is missing before it as a gap",
        "In `detect`, the receiver then sends a nak of what it lacks.",
    )
    trace.subscribe("f")
    trace.up(detect=["f"])
    trace.data("f", 0)
    trace.data("f", 2)
    trace.delivers(0, 2)
    trace.reports({"event": "gap", "first": 1, "end": 2}, of=("gap",))
    trace.wait(1)
    trace.abandoned("f", 4)
    trace.reports({"event": "gap", "first": 3, "end": 4}, of=("gap",))
    trace.transmits(nak("f", (1, 2), (3, 4), known="4"))
    return trace
