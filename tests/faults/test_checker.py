"""The checker: correct runs pass, and every known mistake is caught."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import twinlink
from twinlink.protocol.send.loss import NOT_TAKEN
from twinlink.testing import base

from .checker import check
from .ledger import Session, Writer, digest, read
from .mistakes import ANYWHERE, SPOILED, event, got
from .story import FLOW, MS, OCTETS, Book, Story, plain, replaced, tell
from .verdict import Fault


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32), reliability=st.sampled_from(["repair", "detect"]))
def test_what_went_well_is_clean(seed: int, reliability: str) -> None:
    story = tell(seed, reliability)
    verdict = check(story.sessions())
    assert verdict.findings == []
    assert verdict.sent == sum(len(book.sends) for book in story.senders)


def test_everything_is_accounted_for_once() -> None:
    story = plain()
    verdict = check(story.sessions())
    assert (verdict.sent, verdict.delivered, verdict.reported) == (45, 40, 5)


@pytest.mark.parametrize(("spoil", "fault"), SPOILED, ids=[spoil.__name__ for spoil, _ in SPOILED])
def test_a_mistake_is_caught(spoil: Callable[[Story], None], fault: Fault) -> None:
    story = plain()
    assert check(story.sessions()).clean
    spoil(story)
    assert fault in {finding.fault for finding in check(story.sessions()).findings}


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32), spoil=st.sampled_from(ANYWHERE))
def test_a_mistake_is_caught_among_restarts(seed: int, spoil: Callable[[Story], None]) -> None:
    story = tell(seed)
    story.pass_on(10)
    spoil(story)
    assert not check(story.sessions()).clean


# Mistakes around the death of a process


def test_a_message_of_a_dead_session_after_its_successor() -> None:
    story = plain()
    story.kill_sender(0, "none")
    story.pass_on(3)
    old = story.senders[0]
    first, end = len(old.sends), len(old.sends) + 1
    old.sends.append([first, 5, story.now_ns, story.now_ns])
    story.receiver.got[old.epoch].append([first, 5, story.now_ns + MS])
    found = check(story.sessions()).findings
    assert [(one.fault, one.first, one.end) for one in found] == [(Fault.OLD_SESSION, first, end)]
    new = story.senders[1]
    story.receiver.events = [one for one in story.receiver.events if one.name != "PeerUp"]
    story.receiver.report(story.now_ns + 2 * MS, "PeerUp", epoch=new.epoch, node="sender")
    assert check(story.sessions()).clean
    story.receiver.got[old.epoch][-1][2] = story.now_ns + 3 * MS
    assert [one.fault for one in check(story.sessions()).findings] == [Fault.OLD_SESSION]


def test_an_application_that_asks_late_gets_a_dead_session_s_messages_before_those_of_its_successor() -> None:
    story = plain()
    sent_ns = story.now_ns
    story.kill_sender(0, "none")
    story.pass_on(3)
    old, new = story.senders
    first_new_ns = story.receiver.got[new.epoch][0][2]
    old.sends.append([len(old.sends), 5, sent_ns, sent_ns])

    def faults(taken_ns: int, iterates: bool) -> list[Fault]:
        story.receiver.got[old.epoch].append([len(old.sends) - 1, 5, taken_ns])
        sessions = story.sessions()
        story.receiver.got[old.epoch].pop()
        for session in sessions:
            session.iterates = iterates
        return [one.fault for one in check(sessions).findings]

    up_ns = next(report.at_ns for report in story.receiver.named("PeerUp") if report.fields["epoch"] == new.epoch)
    assert up_ns < first_new_ns
    assert faults(first_new_ns - 1, iterates=False) == [Fault.OLD_SESSION]
    assert faults(first_new_ns - 1, iterates=True) == []
    assert faults(first_new_ns + 1, iterates=True) == [Fault.OLD_SESSION]


def test_no_more_than_the_message_under_way_may_come_from_a_dead_sender() -> None:
    story = plain()
    story.kill_sender(0, "arrived")
    assert check(story.sessions()).clean
    dead = story.senders[0]
    story.receiver.got[dead.epoch].append([46, 5, story.now_ns])
    assert {one.fault for one in check(story.sessions()).findings} == {Fault.PHANTOM}


def test_the_message_under_way_must_be_the_one_that_was_begun() -> None:
    story = plain()
    story.kill_sender(0, "arrived")
    story.receiver.got[story.senders[0].epoch][-1][1] ^= 1
    assert {one.fault for one in check(story.sessions()).findings} == {Fault.CORRUPT}


def test_a_dead_sender_excuses_its_tail_only() -> None:
    story = plain()
    story.kill_sender(5, "none")
    verdict = check(story.sessions())
    assert verdict.clean
    assert verdict.died_with_sender == 5
    del story.receiver.got[story.senders[0].epoch][3]
    assert {one.fault for one in check(story.sessions()).findings} >= {Fault.UNDETECTED}


def test_what_was_acknowledged_does_not_come_again() -> None:
    story = plain()
    story.kill_receiver(0, 0)
    story.deliver(44)
    assert {one.fault for one in check(story.sessions()).findings} == {Fault.AGAIN}


def test_what_was_not_acknowledged_may_come_again() -> None:
    story = plain()
    sequence = story.send()
    story.deliver(sequence, acknowledge=False)
    story.kill_receiver(0, 0)
    story.deliver(sequence)
    verdict = check(story.sessions())
    assert verdict.clean
    assert verdict.again == 1


def test_what_is_sent_while_the_receiver_is_dead_is_not_forgotten() -> None:
    story = plain()
    story.kill_receiver(2, 10)
    story.pass_on(3)
    verdict = check(story.sessions())
    assert verdict.clean
    assert (verdict.died_with_receiver, verdict.never_owed) == (2, 10)
    events, index = event(story, "sender", "Lost")
    del events[index + 1]
    assert {one.fault for one in check(story.sessions()).findings} == {Fault.UNACCOUNTED, Fault.SENDER_UNAWARE}


def test_of_a_dead_receiver_the_sender_cannot_know() -> None:
    story = plain()
    sequence = story.send()
    story.deliver(sequence, acknowledge=False)
    story.kill_receiver(0, 0)
    story.sender.report(story.now_ns, "Lost", first=sequence, end=sequence + 1, reason="the peer went down")
    story.pass_on(5)
    assert check(story.sessions()).clean
    story.sender.report(story.now_ns, "Lost", first=sequence + 2, end=sequence + 3, reason="a mistake")
    assert {one.fault for one in check(story.sessions()).findings} == {Fault.FALSE_LOST}


def test_what_a_dead_receiver_skipped_before_it_died_is_not_excused() -> None:
    story = plain()
    story.kill_receiver(0, 0)
    story.pass_on(5)
    del story.receivers[0].got[story.sender.epoch][10]
    assert {one.fault for one in check(story.sessions()).findings} == {Fault.UNDETECTED}


def test_a_new_session_that_skips_what_it_was_owed_first_is_caught() -> None:
    story = plain()
    story.kill_receiver(0, 0)
    story.pass_on(5)
    del got(story)[0]
    assert Fault.UNDETECTED in {one.fault for one in check(story.sessions()).findings}


def test_what_was_sent_before_it_was_owed_may_come_all_the_same() -> None:
    story = plain()
    story.kill_receiver(0, 3)
    last = len(story.sender.sends) - 1
    story.deliver(last, acknowledge=False)
    story.pass_on(5)
    verdict = check(story.sessions())
    assert verdict.clean
    assert (verdict.unpromised, verdict.never_owed) == (1, 2)


def test_a_gap_is_in_order_when_what_is_newer_fills_the_retention() -> None:
    story = plain()
    event(story, "receiver", "Gap")[0][-1].at_ns += 10 * MS
    story.sender.retention = 20 * OCTETS
    assert {one.fault for one in check(story.sessions()).findings} == {Fault.TOO_SOON}
    story.sender.retention = 3 * OCTETS
    assert check(story.sessions()).clean


@pytest.mark.parametrize("reliability", ["repair", "detect"])
def test_a_receiver_that_knows_of_the_sender_owes_a_gap_for_everything(reliability: str) -> None:
    story = plain(reliability)
    story.kill_receiver(0, 0)
    sent = [story.send() for _ in range(4)]
    story.sender.report(story.now_ns, "Lost", first=sent[0], end=sent[-1] + 1, reason="")
    assert {one.fault for one in check(story.sessions()).findings} == {Fault.TAIL}


def rejected(story: Story, reports: bool) -> None:
    """The first messages to a new session come before it subscribes, and there is no room for them."""
    sent = [story.send() for _ in range(3)]
    story.now_ns += 1000 * MS
    fields = {"first": sent[0], "end": sent[-1] + 1}
    story.sender.report(story.now_ns, "Lost", **fields, reason=NOT_TAKEN, peers=["dt"])
    if reports:
        story.receiver.report(story.now_ns, "Unclaimed", epoch=story.sender.epoch, **fields)
    story.pass_on(5)


def test_what_was_rejected_is_reported_unless_its_receiver_died_before() -> None:
    for reports, dies in ((True, False), (True, True), (False, True)):
        story = plain()
        story.kill_receiver(0, 0)
        rejected(story, reports)
        if dies:
            story.kill_receiver(0, 0)
            story.pass_on(5)
        assert check(story.sessions()).findings == []
    story = plain()
    story.kill_receiver(0, 0)
    rejected(story, reports=False)
    assert {one.fault for one in check(story.sessions()).findings} == {Fault.UNDETECTED}


def test_a_gap_that_was_found_in_time_may_be_told_of_later() -> None:
    story = plain()
    story.receiver.events[-1].at_ns += 5000 * MS
    assert [one.fault for one in check(story.sessions()).findings] == [Fault.LATE_GAP]
    found_ns = story.receiver.events[-1].at_ns - 4900 * MS
    story.receiver.events[-1] = replaced(story.receiver.events[-1], time_ns=found_ns)
    assert check(story.sessions()).findings == []


# Several receiving nodes


def another(story: Story, *, up_from: int, has_from: int, ended: bool = True) -> Session:
    """A second node, which was up from one message on, and has what the first one has from another message on."""
    sender, first = story.sender, story.receiver
    book = Book("dt2", "listen", 77, sender.sends[0][2] - 5 * MS, story.reliability, ended=ended)
    sender.report(sender.sends[up_from][2] - 1, "PeerUp", node="dt2", epoch=77)
    book.got[sender.epoch] = [list(row) for row in first.got[sender.epoch] if row[0] >= has_from]
    book.events = first.named("Gap")
    sender.acked[77] = [(row[0], row[0] + 1) for row in book.got[sender.epoch]]
    return book.session()


def test_a_node_that_came_later_is_owed_nothing_that_another_got_before() -> None:
    story = plain()
    late = another(story, up_from=10, has_from=10)
    assert check([*story.sessions(), late]).findings == []


def test_what_a_node_is_owed_is_not_excused_because_another_has_it() -> None:
    story = plain()
    late = another(story, up_from=5, has_from=10)
    faults = {one.fault for one in check([*story.sessions(), late]).findings}
    assert faults == {Fault.UNDETECTED, Fault.SENDER_UNAWARE}


def test_what_died_with_one_of_two_nodes_is_lost() -> None:
    story = plain()
    killed = another(story, up_from=0, has_from=45, ended=False)
    faults = {one.fault for one in check([*story.sessions(), killed]).findings}
    assert faults == {Fault.UNACCOUNTED, Fault.SENDER_UNAWARE}
    story.sender.report(story.now_ns, "Lost", first=0, end=20, reason="restarted")
    story.sender.report(story.now_ns, "Lost", first=25, end=45, reason="restarted")
    assert check([*story.sessions(), killed]).findings == []


# "detect": late is allowed, when it is said


def test_late_without_a_word_is_caught() -> None:
    story = plain("detect")
    story.come_late(3)
    story.pass_on(3)
    assert check(story.sessions()).late == 3
    events, index = event(story, "receiver", "Reordered")
    del events[index]
    assert {one.fault for one in check(story.sessions()).findings} == {Fault.REORDERED, Fault.FALSE_GAP}


def test_repair_may_not_deliver_late_even_with_a_word() -> None:
    story = plain("detect")
    story.come_late(3)
    for book in story.senders + story.receivers:
        book.reliability = "repair"
    assert Fault.REORDERED in {one.fault for one in check(story.sessions()).findings}


# Mistakes made live: two real links, and a receiver that the application must not trust


class Untrue:
    """Passes a receiver's messages on, and makes one mistake every so often."""

    def __init__(self, mistake: str) -> None:
        self.mistake = mistake
        self.held: list[twinlink.Message] = []

    def pass_on(self, message: twinlink.Message) -> list[twinlink.Message]:
        if message.sequence % 50 != 49:
            held, self.held = self.held, []
            return [message, *held]
        if self.mistake == "drops":
            return []
        if self.mistake == "repeats":
            return [message, message]
        if self.mistake == "swaps":
            self.held = [message]
            return []
        return [message._replace(payload=bytes(message.payload)[:-1] + b"?")]


@pytest.mark.parametrize(
    ("mistake", "fault"),
    [
        ("none", None), ("drops", Fault.UNDETECTED), ("repeats", Fault.DUPLICATE), ("swaps", Fault.REORDERED),
        ("spoils", Fault.CORRUPT),
    ],
)  # fmt: skip
def test_a_broken_shim_over_real_links_is_caught(tmp_path: Path, mistake: str, fault: Fault | None) -> None:
    endpoint = base.free_endpoint()
    paths = [tmp_path / "rw.ledger", tmp_path / "dt.ledger"]
    sent, received = (Writer(path) for path in paths)
    with (
        twinlink.open("memory", listen=endpoint, node="dt") as dt,
        twinlink.open("memory", connect=endpoint, node="rw") as rw,
    ):
        sent.open(rw.epoch, node="rw", role="connect")
        received.open(dt.epoch, node="dt", role="listen")
        sent.flow(FLOW, "sends")
        received.flow(FLOW, "receives")
        rw.wait_ready(base.patience())
        receiver, sender = dt.receiver(FLOW), rw.sender(FLOW)
        shim = Untrue(mistake)
        for number in range(200):
            payload = f"message {number}".encode()
            sent.begin(FLOW, len(payload), digest(payload))
            sent.sent(FLOW, sender.send(payload), len(payload), digest(payload))
        for message in base.receive_all(receiver, 200):
            for passed in [message] if mistake == "none" else shim.pass_on(message):
                hashed = digest(passed.payload)
                received.got(FLOW, passed.epoch, passed.sequence, passed.sent_ns, len(passed.payload), hashed)
    sent.closed()
    received.closed()
    sessions = [session for path in paths if (session := read(path)) is not None]
    faults = {finding.fault for finding in check(sessions).findings}
    assert faults == set() if fault is None else fault in faults


def test_what_is_lost_to_another_node_is_not_lost_to_this_one() -> None:
    story = plain()
    index = next(at for at, report in enumerate(story.sender.events) if report.name == "Lost")
    story.sender.events[index] = replaced(story.sender.events[index], peers=["dt"])
    assert check(story.sessions()).clean
    story.sender.events[index] = replaced(story.sender.events[index], peers=["another"])
    assert {one.fault for one in check(story.sessions()).findings} == {Fault.SENDER_UNAWARE}


def test_what_a_node_has_is_not_lost_to_it() -> None:
    story = plain()
    for peer, faults in (("another", set()), ("dt", {Fault.FALSE_LOST})):
        story.sender.report(story.now_ns, "Lost", first=3, end=4, reason="a mistake", peers=[peer])
        assert {one.fault for one in check(story.sessions()).findings} == faults
