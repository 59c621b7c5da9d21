"""Who is to get what is sent: peers come, fall silent, return and go."""

from twinlink.protocol.send.receivers import ReceiverSet

THIS, OTHER = 1, 2
MAX = 2**24


def _two() -> ReceiverSet:
    """One peer that asks for what it misses is up, and one that takes frames whole."""
    these = ReceiverSet()
    these.on_up(THIS, 10, 10, repairs=True, sends_naks=True, max_payload=MAX)
    these.on_up(OTHER, 20, 20, repairs=False, sends_naks=False, max_payload=MAX)
    these.of[THIS].consumed = 15
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
    assert these.suspended == [THIS]
    assert {epoch: peer.consumed for epoch, peer in these.of.items()} == {THIS: 15, OTHER: 20}
    assert (these.first_owed(THIS, 0), these.first_owed(OTHER, 0)) == (10, 0)


def test_who_is_back_goes_on_where_it_was() -> None:
    these = _absent()
    these.on_up(THIS, 100, 90, repairs=True, sends_naks=True, max_payload=MAX)
    assert (these.of[THIS].consumed, these.first_owed(THIS, 0)) == (15, 10)
    assert (these.resuming, these.of[THIS].resumed_at) == ({THIS}, 90)
    assert not these.suspended
