"""What an observer is told of gaps: those of the observed link, never those of the mirror."""

import itertools

import pytest

import twinlink
from twinlink.mirror import Observation
from twinlink.mirror.entries import MIRROR_FLOW, frame_entry, head, left_out_entries, peers_entry
from twinlink.protocol.frames import DATA_WORD, HEADER
from twinlink.protocol.rangeset import RangeSet
from twinlink.runtime.capture import FrameItem, LeftOutItem

OBSERVED, PEER, SESSION = 7, 8, 9
TOPIC = b"traffic/x"


def data(sequence: int, direction: str = "received", epoch: int = PEER) -> bytes:
    frame = HEADER.pack(DATA_WORD, 1, epoch, sequence, 1000 + sequence) + b"p"
    return b"".join(map(bytes, frame_entry(FrameItem(direction, TOPIC, frame, 2000 + sequence))))


def left_out(first: int, end: int) -> bytes:
    item = LeftOutItem({("received", TOPIC, PEER): RangeSet([(first, end)])}, 0, 3000)
    return b"".join(left_out_entries(item))


class Fed:
    """An observation and the messages of its mirror."""

    def __init__(self) -> None:
        self.observation = Observation()
        self._numbers = itertools.count()

    def take(self, *entries: bytes) -> list[object]:
        """Numbers of messages, and the other things as they are."""
        payload = head("twin", OBSERVED) + b"".join(entries)
        message = twinlink.Message(payload, MIRROR_FLOW, next(self._numbers), SESSION, "twin", 0, 0)
        taken = self.observation.take(message)
        return [one.sequence if isinstance(one, twinlink.Message) else one for one in taken]

    def lose(self) -> None:
        """A message of the mirror does not come."""
        next(self._numbers)


@pytest.fixture
def fed() -> Fed:
    made = Fed()
    made.take(peers_entry([(PEER, "gnb")], 0))
    return made


def gap(first: int, end: int, now_ns: int) -> twinlink.Gap:
    return twinlink.Gap(now_ns, "x", PEER, first, end)


def test_it_begins_with_what_comes_first_and_shows_each_message_once(fed: Fed) -> None:
    assert fed.take(data(100), data(101), data(101), data(100)) == [100, 101]
    assert fed.take(data(5, "sent", OBSERVED)) == [5]


def test_what_the_observed_node_lacks_is_a_gap_and_what_comes_after_all_is_told(fed: Fed) -> None:
    assert fed.take(data(1), data(4)) == [1, gap(2, 4, 2004), 4]
    assert fed.take(data(2)) == [twinlink.Reordered(2002, "x", PEER, 2), 2]


def test_what_the_mirror_has_left_out_is_unseen_and_no_gap(fed: Fed) -> None:
    assert fed.take(data(1), left_out(2, 5), data(5)) == [1, 5]
    assert fed.observation.unseen == 3
    assert fed.take(left_out(7, 9), data(9)) == [gap(6, 7, 3000), 9]
    assert fed.observation.unseen == 5
    assert fed.take(data(3)) == [3]  # the peer has sent it again
    assert fed.observation.unseen == 4


def test_what_a_lost_message_of_the_mirror_may_have_held_is_unseen(fed: Fed) -> None:
    assert fed.take(data(1)) == [1]
    fed.lose()
    assert fed.take(data(4), data(6)) == [4, gap(5, 6, 2006), 6]
    assert fed.observation.unseen == 2


def test_streams_of_peers_that_have_gone_are_forgotten(fed: Fed) -> None:
    fed.take(data(1))
    fed.take(peers_entry([], 0))
    assert fed.take(data(50)) == [50]
    assert fed.observation.peers == {}


@pytest.mark.parametrize("cut", range(1, 60))
def test_what_cannot_be_read_is_counted_and_what_follows_may_be_unseen(cut: int) -> None:
    fed = Fed()
    fed.take(data(1))
    payload = (head("twin", OBSERVED) + data(2) + peers_entry([(PEER, "gnb")], 0))[:-cut]
    message = twinlink.Message(payload, MIRROR_FLOW, next(fed._numbers), SESSION, "twin", 0, 0)
    found = list(fed.observation.take(message))
    ends_between_entries = len(payload) in (len(head("twin", OBSERVED)), len(head("twin", OBSERVED) + data(2)))
    assert fed.observation.malformed == (0 if ends_between_entries else 1)
    assert [one.sequence for one in found if isinstance(one, twinlink.Message)] in ([], [2])
