"""The rules of a state, one by one, on replicas without a link."""

import itertools
import time
from random import Random

import pytest

from tests.state.simulated import MS, RETURN_NS, Network, S, desired
from twinlink.errors import ConfigurationError, PayloadTooLarge, StateFull
from twinlink.state.peer import MAX_RESEND_NS, WINDOW_OCTETS
from twinlink.state.record import MAX_NUMBER, MAX_PAYLOAD, Record, Slot, Stamp, decode
from twinlink.state.replica import MAX_OCTETS, MAX_VALUES, MERGE_FACTOR, Replica

CELL = desired("cell-1")
A, B, C = 0, 1, 2


def met(size: int = 2, *, mesh: bool = False) -> Network:
    """Nodes that are all up for each other."""
    network = Network(Random(1), size, mesh=mesh)
    for pair in network.pairs:
        network.meet(*pair)
    return network


def payload(network: Network, number: int, slot: Slot = CELL) -> bytes | None:
    value = network.nodes[number].replica.value(slot, network.now_ns)
    return value.payload if value is not None else None


def take(replica: Replica, octets: bytes, epoch: int = 7, *, may_desire: bool = True) -> list[str]:
    """Give a replica a message; returns what has changed."""
    changes = replica.receive(epoch, octets, may_desire=may_desire, sent_ns=0, received_ns=0, now_ns=0, mono_ns=0)
    return [change.what for change in changes]


def message(*records: Record) -> bytes:
    return b"tK\x01\x00" + b"".join(record.encode() for record in records)


def record(version: int, author: str = "a", octets: bytes | None = b"x", slot: Slot = CELL, **more: object) -> Record:
    fields: dict[str, object] = {"answers": 0, "remaining_ms": None, **more}
    return Record(slot, Stamp(version, author, 1), version, payload=octets, **fields)  # type: ignore[arg-type]


# Snapshot and difference


def test_who_joins_late_gets_all_with_the_first_message() -> None:
    network = Network(Random(1), 2)
    for number in range(100):
        network.write(A, desired(f"cell-{number}"), b"%d" % number)
    network.meet(A, B)
    network.run(2 * network.delay_ns)  # one way, with its jitter
    assert len(network.values(B)) == 100
    assert network.sent == 1


def test_the_largest_state_arrives_without_waiting_for_an_ack() -> None:
    network = Network(Random(1), 2)
    for number in range(MAX_OCTETS // MAX_PAYLOAD):
        network.write(A, desired(f"cell-{number}"), bytes(MAX_PAYLOAD))
    network.meet(A, B)
    network.run(2 * network.delay_ns)
    assert len(network.values(B)) == MAX_OCTETS // MAX_PAYLOAD


def test_who_comes_back_gets_the_difference_only() -> None:
    network = met()
    for number in range(500):
        network.write(A, desired(f"cell-{number}"), bytes(1000))
    network.run(S)
    network.part(A, B)
    network.write(A, desired("cell-3"), b"new")
    network.run(30 * S)
    sent = network.sent
    network.meet(A, B)
    network.run(S)
    assert network.sent == sent + 1
    assert payload(network, B, desired("cell-3")) == b"new"


def test_a_session_that_was_away_too_long_gets_all() -> None:
    network = met()
    network.write(A, CELL, b"1")
    network.run(S)
    network.part(A, B)
    network.run(RETURN_NS + S)
    network.nodes[A].replica.on_peer_up(99, "another", network.now_ns)  # peers that are gone are forgotten then
    assert network.nodes[B].epoch not in network.nodes[A].replica.peers
    network.meet(A, B)
    network.run(S)
    assert network.values(A) == network.values(B)


def test_of_an_author_that_dies_the_others_pass_on_what_it_said() -> None:
    network = met(3, mesh=True)
    network.write(A, CELL, b"last words")
    network.ways[A, C].messages.clear()  # it is dead before C has it
    network.run(S)
    assert payload(network, C) is None
    for other in (B, C):
        network.nodes[other].replica.on_peer_down(network.nodes[A].epoch, False, network.now_ns)
        network.transmit(other)
    network.up -= {(A, B), (A, C)}
    network.run(S)
    assert payload(network, C) == b"last words"


def test_an_ack_of_an_older_value_acknowledges_no_newer_one() -> None:
    replica = Replica("a", 1)
    replica.on_peer_up(7, "b", 0)
    for sequence in range(2):
        replica.write(CELL, b"%d" % sequence, 0, 0)
        assert replica.poll_transmit(0)
        replica.on_sent(sequence, 0)
    replica.on_ack(7, 0, 0)
    assert not replica.is_acknowledged()
    value = replica.value(CELL, 0)
    assert value is not None
    assert value.acknowledged == ()
    replica.on_ack(7, 1, 0)
    value = replica.value(CELL, 0)
    assert value is not None
    assert value.acknowledged == ("b",)


def test_what_is_not_acknowledged_is_sent_again_ever_more_rarely() -> None:
    replica = Replica("a", 1)
    replica.on_peer_up(7, "b", 0)
    replica.write(CELL, b"1", 0, 0)
    times, now = [0], 0
    for sequence in range(8):
        assert replica.poll_transmit(now) is not None
        replica.on_sent(sequence, now)
        assert replica.poll_transmit(now) is None
        due = replica.next_timeout()
        assert due is not None
        assert replica.on_timeout(due) == []
        times.append(now := due)
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_RESEND_NS


def test_a_slow_peer_gets_the_newest_values_and_not_all() -> None:
    replica = Replica("a", 1)
    replica.on_peer_up(7, "b", 0)
    sent = list[bytes]()
    for number in range(100):
        replica.write(CELL, bytes(10_000) + b"%d" % number, number, 0)
        while (octets := replica.poll_transmit(0)) is not None:
            replica.on_sent(len(sent), 0)
            sent.append(octets)
    assert sum(map(len, sent)) < WINDOW_OCTETS + 20_000
    for sequence in range(len(sent)):
        replica.on_ack(7, sequence, 0)
    newest = replica.poll_transmit(0)
    assert newest is not None
    assert newest.endswith(b"99")


def test_a_value_that_is_set_often_while_no_ack_comes_is_sent_again() -> None:
    replica = Replica("a", 1)
    replica.on_peer_up(7, "b", 0)
    sequence = 0
    for number in range(20):
        replica.write(CELL, bytes(MAX_PAYLOAD), number, 0)
        while replica.poll_transmit(0) is not None:
            replica.on_sent(sequence, 0)
            sequence += 1
    due = replica.next_timeout()  # the newest value has not left, and of all that has nothing may arrive
    assert due is not None
    replica.on_timeout(due)
    assert replica.poll_transmit(due) is not None


def test_a_listener_passes_on_what_one_connector_says_to_the_others() -> None:
    network = met(3)
    network.write(B, Slot("cell-1", "reported"), b"on")
    network.run(S)
    assert payload(network, C, Slot("cell-1", "reported")) == b"on"
    assert network.sent == 2


# Which value wins


def test_after_a_partition_the_later_of_two_values_wins_on_both_sides() -> None:
    network = met()
    network.part(A, B)
    network.write(A, CELL, b"early, of A")
    network.run(10 * S)
    network.write(B, CELL, b"later, of B")
    network.write(B, desired("cell-2"), b"early, of B")
    network.run(10 * S)
    network.write(A, desired("cell-2"), b"later, of A")
    network.run(10 * S)
    network.meet(A, B)
    network.run(S)
    assert payload(network, A) == payload(network, B) == b"later, of B"
    assert payload(network, A, desired("cell-2")) == payload(network, B, desired("cell-2")) == b"later, of A"


def test_of_equal_versions_the_greater_name_wins_and_then_the_greater_session() -> None:
    assert Stamp(2, "a", 0) > Stamp(1, "z", 9)
    assert Stamp(1, "b", 0) > Stamp(1, "a", 9)
    assert Stamp(1, "a", 2) > Stamp(1, "a", 1)
    for order in ((1, 2), (2, 1)):
        replica = Replica("n", 1)
        for author in order:
            take(replica, message(record(5, f"node-{author}", b"%d" % author)))
        value = replica.value(CELL, 0)
        assert value is not None
        assert value.payload == b"2"


@pytest.mark.parametrize("step_s", [-10_000, 10_000])
def test_a_node_whose_clock_was_set_still_replaces_what_it_knows(step_s: int) -> None:
    network = met()
    network.write(A, CELL, b"before")
    network.run(S)
    network.nodes[B].offset_ns = step_s * S
    network.write(B, CELL, b"after")
    network.run(S)
    network.write(A, CELL, b"and after that")
    network.run(S)
    assert payload(network, A) == payload(network, B) == b"and after that"


def test_the_highest_version_is_refused_with_its_reason() -> None:
    replica = Replica("a", 1)
    take(replica, message(record(MAX_NUMBER)))
    with pytest.raises(ConfigurationError, match="highest version"):
        replica.write(CELL, b"1", 0, 0)


# Expiry


def test_what_is_not_renewed_ends_on_every_node_when_its_author_is_gone() -> None:
    network = met(3)
    network.write(A, CELL, b"1", 2 * S)
    network.run(S)
    network.write(A, CELL, b"2", 2 * S)
    network.part(A, B)
    network.run(1900 * MS)
    assert payload(network, C) == b"2"
    network.run(150 * MS)
    assert [payload(network, number) for number in (A, B, C)] == [None, None, None]
    assert [change.what for change in network.nodes[C].changes] == ["set", "set", "expired"]


def test_who_joins_late_gets_what_remains_of_the_time() -> None:
    network = Network(Random(1), 2)
    network.write(A, CELL, b"1", 3 * S)
    network.run(2 * S)
    network.meet(A, B)
    network.run(900 * MS)
    assert payload(network, B) == b"1"
    network.run(150 * MS)
    assert payload(network, B) is None


def test_what_expired_on_its_way_does_not_live_again() -> None:
    network = met()
    network.write(A, CELL, b"0")
    network.run(S)  # B knows how long a message takes
    network.part(A, B)
    network.write(A, CELL, b"1", 2 * S)  # the link retransmits that later
    network.nodes[A].replica.on_peer_up(network.nodes[B].epoch, "node-1", network.now_ns)
    network.transmit(A)
    network.run(30 * S)
    network.random = Random(3)  # with which it is kept
    network.meet(A, B)
    network.run(S)
    assert network.nodes[B].replica.counters["late"] == 1
    assert [change.what for change in network.nodes[B].changes] == ["set", "expired"]


def test_what_expired_before_it_was_sent_is_sent_without_its_payload() -> None:
    network = Network(Random(1), 2)
    network.write(A, CELL, b"1", S)
    network.run(2 * S)
    network.meet(A, B)
    network.run(S)
    assert network.nodes[B].changes == []
    assert network.values(B) == {}


# Limits


def test_too_long_a_value_and_one_too_many_are_refused_with_the_reason() -> None:
    replica = Replica("a", 1)
    with pytest.raises(PayloadTooLarge, match="65537 octets for 'cell-1'"):
        replica.write(CELL, bytes(MAX_PAYLOAD + 1), 0, 0)
    for number in range(MAX_VALUES):
        replica.write(desired(str(number)), b"", number, 0)
    with pytest.raises(StateFull, match="1024 values of 0 octets"):
        replica.write(CELL, b"", 0, 0)
    replica.write(desired("5"), None, 0, 0)
    replica.write(CELL, b"", 0, 0)  # what was removed is forgotten for it
    assert replica.stats() == {"values": MAX_VALUES, "octets": 0, "forgotten": 1}


def test_octets_are_limited_and_given_back() -> None:
    replica = Replica("a", 1)
    for number in range(MAX_OCTETS // MAX_PAYLOAD):
        replica.write(desired(str(number)), bytes(MAX_PAYLOAD), number, 0)
    with pytest.raises(StateFull):
        replica.write(CELL, b"1", 0, 0)
    replica.write(desired("1"), b"1", 0, 0)
    replica.write(CELL, b"1", 0, 0)


def test_two_sides_that_were_apart_may_both_be_full() -> None:
    network = Network(Random(1), 2)
    for number in range(MAX_VALUES):
        network.write(A, desired(f"a-{number}"), b"1")
        network.write(B, desired(f"b-{number}"), b"1")
    network.meet(A, B)
    network.run(S)
    assert len(network.values(A)) == 2 * MAX_VALUES
    assert network.values(A) == network.values(B)


def test_what_comes_beyond_the_limit_is_refused_and_counted() -> None:
    replica, most = Replica("a", 1), MERGE_FACTOR * MAX_VALUES
    records = [record(number + 1, slot=desired(str(number))) for number in range(most + 3)]
    for one in records:
        take(replica, message(one))
    assert replica.stats()["values"] == most
    assert replica.counters["full"] == 3


def test_notes_of_what_was_removed_do_not_fill_it() -> None:
    replica = Replica("a", 1)
    for number in range(3 * MAX_VALUES):
        replica.write(desired(str(number)), b"1", number, 0)
        replica.write(desired(str(number)), None, number, 0)
    assert len(replica._entries) <= MAX_VALUES


def test_a_note_costs_no_search_of_a_full_table() -> None:
    replica, most = Replica("a", 1), MERGE_FACTOR * MAX_VALUES

    def takes_s(first: int, count: int) -> float:
        notes = (record(n + 1, octets=None, slot=desired(str(n))) for n in range(first, first + count))
        octets, began_s = message(*notes), time.process_time()
        take(replica, octets)
        return time.process_time() - began_s

    while_empty = takes_s(0, most // 2)
    takes_s(most // 2, most // 2)
    assert takes_s(most, most // 2) < 10 * while_empty
    assert len(replica._entries) == most
    assert replica.counters["forgotten"] == most // 2
    assert {desired(str(most // 2 - 1)), desired(str(most // 2))} & set(replica._entries) == {desired(str(most // 2))}


# Roles


def test_a_node_that_obeys_takes_desired_values_only_from_who_may_desire() -> None:
    gnb = Replica("gnb", 1, takes_recalled=False)
    assert take(gnb, message(record(1)), may_desire=False) == []
    assert gnb.counters["role"] == 1
    assert take(gnb, message(record(1, recalled=True))) == []
    assert take(gnb, message(record(1))) == ["set"]
    assert take(gnb, message(record(1, slot=Slot("cell-1", "reported"))), may_desire=False) == ["set"]


def test_a_twin_that_restarted_learns_what_it_had_desired_and_passes_it_on_as_recalled() -> None:
    twin = Replica("twin", 2, relays=True)
    assert take(twin, message(record(1, "twin", b"before")), may_desire=False) == ["set"]
    twin.on_peer_up(8, "gnb-2", 0)
    octets = twin.poll_transmit(0)
    assert octets is not None
    assert [one.recalled for one in decode(octets)] == [True]
    gnb = Replica("gnb-2", 1, takes_recalled=False)
    assert take(gnb, octets) == []  # it may have been made up by the gNB that recalled it
    twin.on_sent(0, 0)
    assert take(twin, message(record(1, "twin", b"before"))) == []  # from another twin
    octets = twin.poll_transmit(0)
    assert octets is not None
    assert take(gnb, octets) == ["set"]


def test_a_recalled_value_that_was_altered_gives_way_to_the_one_of_its_author() -> None:
    twin = Replica("twin-2", 2, relays=True)
    twin.on_peer_up(8, "gnb-2", 0)
    forged = record(1, "twin-1", b"forged", remaining_ms=100)
    assert take(twin, message(forged), may_desire=False) == ["set"]
    assert take(twin, message(record(1, "twin-1", b"true")), epoch=9) == ["set"]
    assert twin.on_timeout(S) == []
    value = twin.value(CELL, 0)
    assert value is not None
    assert value.payload == b"true"
    octets = twin.poll_transmit(0)
    assert octets is not None
    assert [(one.payload, one.recalled) for one in decode(octets)] == [(b"true", False)]
    assert take(twin, message(record(1, "twin-1", b"forged")), may_desire=False) == []
    assert take(twin, message(record(1, "twin-1", None, remaining_ms=0)), may_desire=False) == []
    assert twin.value(CELL, 0) == value


def test_an_observer_sends_nothing() -> None:
    observer = Replica("observer", 1, sends=False)
    take(observer, message(record(1)))
    observer.on_peer_up(8, "twin", 0)
    assert observer.poll_transmit(0) is None
    assert observer.next_timeout() is None
