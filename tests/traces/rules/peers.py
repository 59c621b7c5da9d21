"""Peers (section 4 of docs/protocol.md)."""

from tests.traces.script import HELLO, MS, NODE, OTHER, PEER, PEER_EVENTS, START_NS, SUCCESSOR, Trace, data, retransmit

UP = {"event": "peer_up", "node": "peer"}


def down(reason: str) -> dict[str, str]:
    return {"event": "peer_down", "node": "peer", "reason": reason}


def hello_while_searching() -> Trace:
    trace = Trace("A node MUST send one every 200 ms, and every 50 ms while it has no peer")
    for _ in range(4):
        trace.wait(1)
        trace.transmits(HELLO, within_ms=50)
        trace.wait(50)
    return trace


def hello_while_up() -> Trace:
    trace = Trace("A node MUST send one every 200 ms, and every 50 ms while it has no peer")
    trace.up()
    trace.stay_up(300)
    trace.wait(1)
    trace.transmits(HELLO, within_ms=200)
    trace.hello()
    trace.wait(1)
    trace.ms += 199
    trace.hello()
    trace.transmits(HELLO, within_ms=200)
    return trace


def hello_when_suspecting() -> Trace:
    trace = Trace("has not heard one for 300 ms")
    trace.up()
    trace.stay_up(300)
    trace.wait(301)
    for _ in range(3):
        trace.transmits(HELLO, within_ms=50)
        trace.wait(51)
    return trace


def hello_without_news() -> Trace:
    trace = Trace("has had no news of it for 600 ms")
    trace.up()
    number = str((START_NS + trace.ms * MS) % 2**50)
    for _ in range(9):
        trace.wait(100)
        trace.hello(confirms=int(number) - MS)
    for _ in range(3):
        trace.wait(1)
        trace.transmits(HELLO, within_ms=50)
        trace.wait(50)
    return trace


def hello_lists_the_heard() -> Trace:
    trace = Trace("`heard` lists each epoch from which a hello came, and since then neither a bye nor a timeout.")
    listed = {**HELLO, "body": {"node": "node", "heard": {PEER: trace.hello_number}}}
    trace.hello(confirms=None)
    trace.transmits(listed)
    trace.wait(10)
    trace.receive("bye", "traffic/_link")
    trace.wait(1)
    trace.transmits({**HELLO, "body": {"heard": {}}}, within_ms=100)
    trace.withholds(listed, within_ms=200)
    trace.wait(300)
    listed = {**HELLO, "body": {"node": "node", "heard": {PEER: trace.hello_number}}}
    trace.hello(confirms=None)
    trace.transmits(listed, within_ms=100)
    trace.wait(1600)
    trace.withholds(listed, within_ms=200)
    return trace


def hello_numbers_grow() -> Trace:
    trace = Trace("Numbers MUST grow, and SHOULD stay below 2^53")
    trace.wait(120)
    number = (START_NS + 50 * MS) % 2**50
    trace.transmits()
    trace.ms = 0
    for ms in (50, 100):
        trace.ms = ms
        trace.transmits({**HELLO, "sequence": str(number + (ms - 50) * MS)})
    return trace


def no_messages_before_up() -> Trace:
    trace = Trace("A node MUST NOT send messages before a peer is up.")
    trace.hello(confirms=None)
    trace.wait(1)
    trace.send("f")
    trace.withholds({"topic": "traffic/f"}, within_ms=100)
    return trace


def up_by_confirmed_hello() -> Trace:
    trace = Trace(
        "| heard, deaf | hello with news: it confirms one sent since the peer went down, or ever | up | `PeerUp` |"
    )
    trace.hello(confirms=None)
    trace.reports(of=PEER_EVENTS)
    trace.wait(1)
    trace.hello()
    trace.reports(UP, of=PEER_EVENTS)
    return trace


def not_up_by_an_old_number() -> Trace:
    trace = Trace(
        "| heard, deaf | hello with news: it confirms one sent since the peer went down, or ever | up | `PeerUp` |"
    )
    trace.wait(60)
    trace.hello(confirms=(START_NS - MS) % 2**50)  # none of this session
    trace.reports(of=PEER_EVENTS, within_ms=20)
    return trace


def answers_unknown_at_once() -> Trace:
    trace = Trace("A node answers a hello at once while the peer is not up; when the hello makes it up")
    trace.wait(60)
    listed = {**HELLO, "body": {"heard": {PEER: trace.hello_number}}}
    trace.hello(confirms=None)
    trace.transmits(listed)
    trace.wait(30)
    listed = {**HELLO, "body": {"heard": {PEER: trace.hello_number}}}
    trace.hello()
    trace.transmits(listed)
    return trace


def answers_are_rationed() -> Trace:
    trace = Trace("hellos of peers that are not up need no more than one answer in 20 ms")
    trace.wait(60)
    listed = {**HELLO, "body": {"heard": {PEER: trace.hello_number}}}
    trace.hello(confirms=None)
    trace.transmits(listed)
    trace.wait(5)
    listed = {**HELLO, "body": {"heard": {OTHER: trace.hello_number}}}
    trace.hello(OTHER, confirms=None)
    trace.transmits(listed, within_ms=100)
    return trace


def down_when_silent() -> Trace:
    trace = Trace("| up | 1.3 s without a frame | silent | `PeerDown` (silent) |")
    trace.up()
    trace.wait(1250)
    trace.ms -= 1250
    trace.reports(of=("peer_down",), within_ms=1290)
    trace.wait(1291)
    trace.reports(down("silent"), of=PEER_EVENTS, within_ms=210)
    return trace


def down_when_not_listed() -> Trace:
    trace = Trace(
        "| up | hello that does not list this node; 1.3 s with frames but no news | deaf | `PeerDown` (deaf) |"
    )
    trace.up()
    trace.wait(100)
    trace.hello(confirms=None)
    trace.reports(down("deaf"), of=PEER_EVENTS)
    return trace


def down_without_news() -> Trace:
    trace = Trace(
        "| up | hello that does not list this node; 1.3 s with frames but no news | deaf | `PeerDown` (deaf) |"
    )
    trace.up()
    number = (START_NS + trace.ms * MS) % 2**50 - MS
    begin = trace.ms
    for _ in range(15):
        trace.wait(100)
        trace.hello(confirms=number)
    trace.ms = begin
    trace.reports(of=("peer_down",), within_ms=1290)
    trace.ms = begin + 1291
    trace.reports(down("deaf"), of=PEER_EVENTS, within_ms=210)
    return trace


def behind_is_news() -> Trace:
    trace = Trace("one that lists this node and says `behind`")
    trace.up()
    number, begin = (START_NS + trace.ms * MS) % 2**50 - MS, trace.ms
    for _ in range(20):
        trace.wait(100)
        trace.hello(confirms=number, behind=True)
    trace.ms = begin
    trace.reports(of=("peer_down",), within_ms=2000)
    return trace


def an_ack_is_news() -> Trace:
    trace = Trace("an ack of at least one message; fragment progress.")
    trace.up()
    number, begin = (START_NS + trace.ms * MS) % 2**50 - MS, trace.ms
    for sequence in range(20):
        trace.send("f")
        trace.wait(100)
        trace.hello(confirms=number)
        trace.ack("f", sequence, consumed=sequence + 1)
    trace.ms = begin
    trace.reports(of=("peer_down",), within_ms=2000)
    return trace


def an_empty_ack_is_no_news() -> Trace:
    trace = Trace("an ack of at least one message")
    trace.up()
    trace.send("f")
    number = (START_NS + trace.ms * MS) % 2**50 - MS
    for _ in range(15):
        trace.wait(100)
        trace.hello(confirms=number)
        trace.ack("f", consumed=0)
    trace.ms -= 200
    trace.reports(down("deaf"), of=PEER_EVENTS, within_ms=300)
    return trace


def fragment_progress_is_news() -> Trace:
    trace = Trace("an ack of at least one message; fragment progress.")
    trace.up()
    number, begin = (START_NS + trace.ms * MS) % 2**50 - MS, trace.ms
    trace.send("f", 100_000, in_flight=50_000)
    for _ in range(20):
        trace.wait(100)
        trace.hello(confirms=number)
        trace.receive("fragment_progress", "ack/f", of_epoch=NODE, of_sent_ns=str(START_NS + begin * MS), octets=16_384)
    trace.ms = begin
    trace.reports(of=("peer_down",), within_ms=2000)
    return trace


def sets_behind() -> Trace:
    trace = Trace("The node sets `behind` when it has not read to the end for 300 ms.")
    trace.up()
    trace.backlog()
    behind = {**HELLO, "body": {"behind": True}}
    trace.withholds(behind, within_ms=300)
    trace.wait(301)
    trace.transmits(behind, within_ms=250)
    return trace


def hard_timeout() -> Trace:
    trace = Trace("Times count up to when the transport was last read to its end", "6 s of silence always end a peer")
    trace.up()
    trace.backlog()
    trace.reports(of=("peer_down",), within_ms=5900)
    trace.wait(5901)
    trace.reports(down("silent"), of=PEER_EVENTS, within_ms=300)
    return trace


def up_again_from_silent() -> Trace:
    trace = Trace("| silent | hello | deaf | |", "A deaf or silent session may come up again within 120 s")
    trace.up()
    trace.wait(1600)
    trace.hello(confirms=START_NS % 2**50 + 1000 * MS)  # one from before it went down: no news
    trace.reports(of=("peer_up",))
    trace.wait(60)
    trace.hello()
    trace.reports(UP, of=PEER_EVENTS)
    return trace


def resumption_repairs() -> Trace:
    trace = Trace("and is owed what it has not acknowledged")
    trace.up()
    trace.send("f")
    trace.wait(1600)
    trace.send("f")
    trace.withholds(data("f", 1), within_ms=90)
    trace.wait(100)
    trace.hello()
    trace.transmits({"topic": "traffic/f", "kind": "abandoned", "ranges": []})
    trace.wait(100)
    trace.hello()
    trace.nak("f", 2, (0, 2))
    trace.transmits(retransmit("f", 0), retransmit("f", 1), within_ms=5)
    return trace


def suspension_ends() -> Trace:
    trace = Trace("| deaf, silent | bye, 120 s since it went down; a successor | ended; replaced | |")
    trace.up()
    trace.send("f")
    trace.wait(119_000)
    trace.reports(of=("lost",))
    trace.wait(1000)
    trace.reports({"event": "lost", "flow": "f", "first": 0, "end": 1}, of=("lost",), within_ms=2000)
    return trace


def bye_ends() -> Trace:
    trace = Trace("| up | bye; a successor | ended; replaced | `PeerDown` (closed; restarted) |")
    trace.up()
    trace.receive("bye", "traffic/_link")
    trace.reports(down("closed"), of=PEER_EVENTS)
    return trace


def successor_replaces() -> Trace:
    trace = Trace(
        "A hello of another epoch under the same `node` replaces a session that has been silent for 400 ms",
        "no message of it may follow one of its successor",
    )
    trace.subscribe("f")
    trace.up()
    trace.data("f", 0)
    trace.delivers(0)
    trace.wait(450)
    trace.hello(SUCCESSOR, confirms=None)
    trace.reports(down("restarted"), of=("peer_down",))
    trace.wait(1)
    trace.hello(SUCCESSOR)
    trace.wait(1)
    trace.data("f", 0, SUCCESSOR)
    trace.delivers(0)
    trace.wait(1)
    trace.data("f", 1)
    trace.delivers()
    return trace


def nothing_follows_a_successor() -> Trace:
    trace = Trace(
        "A replaced session does not return: its frames are stale, and no message of it may follow one of its"
    )
    trace.subscribe("f")
    trace.up()
    trace.data("f", 0)
    trace.data("f", 2)
    trace.delivers(0)
    trace.wait(450)
    trace.data("f", 0, SUCCESSOR)  # it has overtaken the hello
    trace.delivers(0)
    trace.wait(1)
    trace.hello(SUCCESSOR, confirms=None)
    trace.reports({"event": "gap", "first": 1, "end": 3}, of=("gap",))
    trace.delivers(within_ms=50)
    return trace


def early_successor_replaces_nothing() -> Trace:
    trace = Trace(
        "A hello of another epoch under the same `node` replaces a session that has been silent for 400 ms",
    )
    trace.up()
    trace.wait(300)
    trace.hello(SUCCESSOR, confirms=None)
    trace.reports(of=("peer_down",), within_ms=20)
    return trace


def later_hello_keeps_session() -> Trace:
    trace = Trace("unless the last hello of that session has both a higher number and a later `sent_ns`")
    trace.up()
    trace.wait(450)
    body = {"node": "peer", "heard": {}, "flows": {}, "repairs": True}
    trace.receive("hello", "traffic/_link", SUCCESSOR, sequence="1", body=body)
    trace.steps[-1]["receive"]["sent_ns"] = str(START_NS - MS)
    trace.reports(of=("peer_down",))
    return trace
