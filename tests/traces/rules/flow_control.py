"""Flow control and the congestion limit (section 5 of docs/protocol.md)."""

from tests.traces.script import HELLO, NODE, OTHER, PEER, Trace, ack, data, nak, retransmit


def consumed_does_not_exceed() -> Trace:
    trace = Trace("It MUST NOT go back in a session, nor exceed the highest received sequence plus one")
    trace.listen("f")
    trace.up()
    for sequence in range(3):
        trace.data("f", sequence)
        trace.transmits(ack("f", sequence, consumed="0"), within_ms=100)
        trace.wait(1)
    trace.wait(100)
    trace.take("f", 2)
    trace.wait(1)
    trace.data("f", 3)
    trace.transmits(ack("f", 3, consumed="2"), within_ms=100)
    trace.wait(101)
    trace.data("f", 0)
    trace.transmits(ack("f", 0, consumed="2"), within_ms=100)
    return trace


def consumed_does_not_go_back() -> Trace:
    trace = Trace("It MUST NOT go back in a session")
    trace.listen("f")
    trace.up(detect=["f"])
    trace.data("f", 0)
    trace.data("f", 2)
    trace.take("f", 2)
    trace.data("f", 1)
    trace.take("f")
    trace.wait(1)
    trace.transmits({"topic": "ack/f", "kind": "ack", "consumed": "3"}, within_ms=100)
    trace.withholds({"topic": "ack/f", "kind": "ack"}, within_ms=100)
    return trace


def consumed_does_not_pass_the_ack() -> Trace:
    trace = Trace("and passes an unacknowledged message only by giving it up")
    trace.listen("f")
    trace.up()
    trace.data("f", 0, octets=131_072)
    trace.with_more_behind()
    trace.take("f")
    trace.delivers(0)
    trace.transmits(ack("f", consumed="0"))
    trace.data("f", 1)
    trace.transmits(ack("f", 0))
    return trace


def credit_after_131072() -> Trace:
    trace = Trace("after each 131,072 consumed octets, counting 512 more for each message")
    trace.listen("f")
    trace.up()
    for sequence in range(3):
        trace.data("f", sequence, octets=65_536)
    trace.wait(110)
    trace.hello()
    trace.take("f")
    trace.wait(1)
    trace.take("f")
    trace.transmits({"topic": "ack/f", "kind": "ack", "records": [], "consumed": "2"}, within_ms=5)
    return trace


def credit_counts_messages() -> Trace:
    trace = Trace("after each 131,072 consumed octets, counting 512 more for each message")
    trace.listen("f")
    trace.up()
    for sequence in range(8):
        trace.data("f", sequence, octets=131_072 // 8 - 512)
    trace.wait(110)
    trace.take("f", 7)
    trace.withholds({"topic": "ack/f"}, within_ms=5)
    trace.wait(6)
    trace.take("f")
    trace.transmits({"topic": "ack/f", "kind": "ack", "records": [], "consumed": "8"}, within_ms=5)
    return trace


def window_holds_back() -> Trace:
    trace = Trace("A sender transmits no more on a flow whose unconsumed messages reach its window")
    trace.up()
    for _ in range(5):
        trace.send("f", 100_000, window=1, in_flight=2**22)
    trace.transmits(data("f", 0), data("f", 1), data("f", 2), within_ms=5)
    trace.withholds(data("f", 4), within_ms=100)
    trace.wait(101)
    trace.hello()
    trace.ack("f", 0, 1, 2, consumed=0)
    trace.withholds(data("f", 4), within_ms=50)
    trace.wait(51)
    trace.ack("f", consumed=3)
    trace.transmits(data("f", 4), within_ms=5)
    return trace


def refuses_beyond_its_window() -> Trace:
    trace = Trace("It then sends *refused*, and requests by naks, in order, what it has room for.", window=300_000)
    trace.listen("f")
    trace.up()
    for sequence in range(5):
        trace.data("f", sequence, octets=100_000)
    trace.transmits({"topic": "ack/f", "kind": "refused", "of_epoch": PEER}, within_ms=60)
    trace.withholds(ack("f", 4), within_ms=60)
    trace.wait(61)
    trace.take("f", 4)
    trace.transmits({"topic": "ack/f", "kind": "nak"}, within_ms=60)
    return trace


def refuses_before_a_hello() -> Trace:
    trace = Trace(
        "without one that has confirmed a hello and not acknowledged, requested or refused what left before that hello",
        window=300_000,
    )
    trace.listen("f")
    trace.up()
    trace.hello(OTHER, confirms=None)
    for sequence in range(3):
        trace.data("f", sequence, octets=100_000)
    trace.data("f", 3, octets=1000)
    trace.hello(OTHER, confirms=None)
    trace.transmits({"topic": "ack/f", "kind": "refused", "of_epoch": PEER}, HELLO, within_ms=60)
    return trace


def waits_for_a_silent_reader() -> Trace:
    trace = Trace("It MUST NOT go on without one that neither refuses, nor acknowledges, nor confirms hellos")
    trace.up()
    trace.up(OTHER)
    for _ in range(4):
        trace.send("f", 100_000, in_flight=250_000, window=2**22)
    trace.transmits(data("f", 0), data("f", 1), within_ms=5)
    trace.wait(6)
    trace.ack("f", 0, 1, consumed=2)
    begin = trace.ms
    for _ in range(9):
        trace.wait(100)
        trace.hello()
    trace.ms = begin
    trace.withholds(data("f", 3), within_ms=900)
    return trace


def goes_on_without_one_that_withholds() -> Trace:
    trace = Trace(
        "without one that has confirmed a hello and not acknowledged, requested or refused what left before that hello"
    )
    trace.up()
    trace.up(OTHER)
    for _ in range(4):
        trace.send("f", 100_000, in_flight=250_000, window=2**22)
    trace.transmits(data("f", 0), data("f", 1), within_ms=5)
    trace.wait(6)
    trace.ack("f", 0, 1, consumed=2)
    begin = trace.ms
    for _ in range(9):
        trace.wait(100)
        trace.hello()
        trace.hello(OTHER)
    trace.ms = begin
    trace.transmits(data("f", 3), within_ms=900)
    return trace


def requested_lowest_is_not_held_back() -> Trace:
    trace = Trace("So a sender MUST NOT hold back the lowest requested message for want of room")
    trace.up()
    for _ in range(3):
        trace.send("f", 100_000, in_flight=250_000, window=2**22)
    trace.transmits(data("f", 0), data("f", 1), within_ms=5)
    trace.wait(6)
    trace.receive("refused", "ack/f", of_epoch=NODE, end="1")
    trace.wait(1)
    trace.nak("f", 0, (0, 1))
    trace.transmits(retransmit("f", 0), within_ms=5)
    return trace


def unclaimed_is_rejected() -> Trace:
    trace = Trace(
        "A message may be **rejected** (T2 = 0) because no application has subscribed to its flow and there is no room",
        "later naks name it among what is missing",
        "If it arrives again, it is rejected again.",
        window=300_000,
    )
    trace.up()
    trace.data("f", 0, octets=20_000)
    trace.transmits(ack("f", 0, rejects=[]), within_ms=100)
    trace.wait(1)
    trace.data("f", 1, octets=20_000)
    trace.transmits(ack("f", rejects=["1"]), within_ms=100)
    trace.wait(1)
    trace.abandoned("f", 2)
    trace.transmits(nak("f", (1, 2)))
    trace.wait(1)
    trace.subscribe("f")
    trace.data("f", 1, octets=20_000, kind="retransmit")
    trace.transmits(ack("f", rejects=["1"]), within_ms=100)
    trace.wait(1)
    trace.abandoned("f", 2, (1, 2))
    trace.abandoned("f", 2)
    trace.transmits(nak("f", known="2"))
    return trace
