"""Who is to get what is sent: peers come, fall silent, return and go."""

from twinlink.protocol.send.receivers import ReceiverSet

THIS, OTHER = 1, 2
MAX = 2**24


def _two() -> ReceiverSet:
    """One peer that asks for what it misses is up, and one that takes frames whole."""
    these = ReceiverSet()
    these.on_up(THIS, 10, 10, repairs=True, sends_naks=True, max_payload=MAX)
    these.on_up(OTHER, 20, 20, repairs=False, sends_naks=False, max_payload=MAX)
    these.consumed[THIS] = 15
    return these


def _absent() -> ReceiverSet:
    these = _two()
    these.on_down(THIS, may_return=True)
    return these


def test_who_falls_silent_is_kept_for_if_it_will_ask() -> None:
    these = _two()
    assert these.on_down(THIS, may_return=True)
    assert not these.on_down(OTHER, may_return=True)
    assert these.all == {THIS}
    assert not these.up
    assert (these.suspended, these.unread_by) == ({THIS: 15}, {OTHER: 20})
    assert THIS in these.first_owed
    assert OTHER not in these.first_owed


def test_who_is_back_goes_on_where_it_was() -> None:
    these = _absent()
    these.on_up(THIS, 100, 90, repairs=True, sends_naks=True, max_payload=MAX)
    assert (these.consumed[THIS], these.first_owed[THIS]) == (15, 10)
    assert these.resuming == {THIS: 90}
    assert not these.suspended
