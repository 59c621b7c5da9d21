"""What is dropped when decisions come faster than the exporter handles them."""

import pytest
from twinlink_exporter import link_inbox
from twinlink_exporter.counters import Counters
from twinlink_exporter.link_inbox import LinkInbox

import twinlink


def decision(epoch: int, sequence: int, node: str | None) -> twinlink.Message:
    return twinlink.Message(b"", "control", sequence, epoch, node, 0, 0)


@pytest.fixture
def inbox(monkeypatch: pytest.MonkeyPatch) -> LinkInbox:
    monkeypatch.setattr(link_inbox, "SIZE", 4)
    return LinkInbox(Counters())


def taken(inbox: LinkInbox) -> list[tuple[int, int]]:
    found = [(item.epoch, item.sequence) for item in inbox.take() if isinstance(item, twinlink.Message)]
    inbox.close()
    return found


def test_a_flood_of_one_twin_costs_no_other_its_decision(inbox: LinkInbox) -> None:
    inbox.put(twinlink.PeerUp(0, "twin-1", 1))
    inbox.put(decision(1, 0, "twin-1"))
    for sequence in range(10):
        inbox.put(decision(2, sequence, "twin-2"))
    assert taken(inbox) == [(1, 0), (2, 8), (2, 9)]


def test_a_stranger_with_a_new_session_for_each_decision_costs_no_twin_its_own(inbox: LinkInbox) -> None:
    inbox.put(decision(1, 0, "twin-1"))
    inbox.put(decision(1, 1, "twin-1"))
    for k in range(10):
        inbox.put(decision(100 + k, 0, None))
    assert taken(inbox) == [(1, 0), (1, 1), (108, 0), (109, 0)]


def test_what_was_taken_counts_no_longer(inbox: LinkInbox) -> None:
    for sequence in range(3):
        inbox.put(decision(1, sequence, "twin-1"))
    assert len(list(inbox.take())) == 3
    for sequence in range(3):
        inbox.put(decision(2, sequence, "twin-2"))
    for sequence in range(3, 5):
        inbox.put(decision(1, sequence, "twin-1"))
    assert taken(inbox) == [(2, 1), (2, 2), (1, 3), (1, 4)]
