"""What docs/compatibility.md promises: an older node beside a newer one, as sessions on a simulated path."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.core.pair import MS, End, Pair, pair
from tests.wire.test_vectors import TWINS
from twinlink.events import Gap, Lost, Malformed, PeerDown
from twinlink.protocol.frames import HEADER_OCTETS, VERSION, Kind, check, frame

PAGE = (Path(__file__).parents[2] / "docs" / "compatibility.md").read_text(encoding="utf-8")
LATER_KIND = max(Kind) + 1
Frames = list[tuple[bytes, bytes]]


def rewrite(made: Pair, end: End, change: Callable[[bytes, bytes], Frames]) -> None:
    """Have an end send what ``change`` makes of the topic and frame of each message."""
    transmit = made.transmit

    def changed(sending: End, topic: bytes, octets: bytes) -> None:
        for new_topic, new_octets in change(topic, octets) if sending is end else [(topic, octets)]:
            transmit(sending, new_topic, new_octets)

    made.transmit = changed  # type: ignore[method-assign,assignment]


def as_kind(octets: bytes, kind: int) -> bytes:
    return octets[:3] + bytes([kind]) + octets[4:]


def assert_messages_pass(made: Pair, count: int = 200) -> None:
    """In both directions, each once and in order, and no peer goes down meanwhile."""
    got = [made.near.receive("down"), made.far.receive("up")]
    senders = [made.far.sender("down"), made.near.sender("up")]
    for number in range(count):
        for sender in senders:
            sender.send(number.to_bytes(4))
        made.run(MS)
    made.run_until(lambda: all(len(messages) == count for messages in got))
    made.run(3000 * MS)
    for messages in got:
        assert [int.from_bytes(message.payload) for message in messages] == list(range(count))
    for end in made.ends:
        assert end.is_up
        assert not end.told(PeerDown)
        assert not end.told(Gap)


def test_a_running_link_takes_every_vector() -> None:
    """What must be dropped is counted once, under the name that its vector gives; the peers do not notice."""
    made = pair()
    expected = []
    for twin in TWINS:
        description = json.loads(twin.read_text(encoding="utf-8"))
        made.near.session.receive(
            description["topic"].encode(), twin.with_suffix(".bin").read_bytes(), made.now, made.now
        )
        expected += [description["malformed"]] if "malformed" in description else []
    assert {reason: count for reason, (count, _) in made.near.session.malformed.items()} == dict.fromkeys(expected, 1)
    assert_messages_pass(made)


def test_a_newer_peer_with_kinds_and_members_that_this_version_does_not_know() -> None:
    def newer(topic: bytes, octets: bytes) -> Frames:
        if check(octets) is Kind.HELLO:
            body = {**json.loads(octets[HEADER_OCTETS:]), "later": {"a": [1, None]}, "window": "a text", "node2": -1.5}
            number, sent_ns = (int.from_bytes(octets[at : at + 8]) for at in (16, 24))
            octets = frame(Kind.HELLO, made.far.epoch, number, sent_ns, json.dumps(body).encode())
        return [(topic, as_kind(octets, LATER_KIND)), (topic, octets), (topic, as_kind(octets, 255))]

    made = pair()
    rewrite(made, made.far, newer)
    assert_messages_pass(made)
    assert list(made.near.session.malformed) == ["kind"]
    assert {event.reason for event in made.near.told(Malformed) if isinstance(event, Malformed)} == {"kind"}
    assert made.far.session.malformed == {}


def test_a_peer_of_another_wire_version_does_not_come_up() -> None:
    made = pair()
    other = made.restart(1)
    rewrite(made, other, lambda topic, octets: [(topic, octets[:2] + bytes([VERSION + 1]) + octets[3:])])
    made.run(5000 * MS)
    assert not made.near.is_up
    assert list(made.near.session.malformed) == ["version"]
    assert not other.is_up  # this side's hellos do not list what it cannot read


def test_an_older_sender_that_does_not_know_refused_loses_nothing() -> None:
    """To a sender from before kind 12, that kind is what the next one is to this sender."""
    made = pair()
    slow = made.add("slow", window=2**18)
    rewrite(
        made,
        slow,
        lambda topic, octets: [(topic, as_kind(octets, LATER_KIND) if check(octets) is Kind.REFUSED else octets)],
    )
    quick = made.far.receive("flow")
    flow = slow.session.messages.flow("flow")
    flow.subscribed = True
    read: list[int] = []
    sender, count = made.near.sender("flow"), 1000

    def step() -> None:
        made.run(MS)
        if (made.now // MS) % 5 == 0 and (taken := flow.next_message()) is not None:
            read.append(taken[0].sequence)

    for _ in range(count):
        sender.send(bytes(2000))
        step()
    for _ in range(100_000):
        if len(read) == count == len(quick):
            break
        step()
    assert read == list(range(count))
    assert [message.sequence for message in quick] == list(range(count))
    assert list(made.near.session.malformed) == ["kind"]  # so messages were refused
    assert not made.near.told(Lost)
    assert not slow.told(Gap)


def test_the_page_has_this_version_and_its_kinds() -> None:
    assert f"wire version {VERSION}" in PAGE
    assert f"kinds 1 to {max(Kind)}" in PAGE
