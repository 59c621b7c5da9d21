"""Who is to get what is sent: peers come, fall silent, return and go."""

from twinlink.protocol.send.receivers import Recipients

THIS, OTHER = 1, 2


def _two() -> Recipients:
    """One peer that asks for what it misses is up, and one that takes frames whole."""
    these = Recipients()
    these.come(THIS, 10, 10, repairs=True, asks=True)
    these.come(OTHER, 20, 20, repairs=False, asks=False)
    these.consumed[THIS] = 15
    return these


def _absent() -> Recipients:
    these = _two()
    these.go(THIS, may_return=True)
    return these


def test_who_falls_silent_is_kept_for_if_it_will_ask() -> None:
    these = _two()
    assert these.go(THIS, may_return=True)
    assert not these.go(OTHER, may_return=True)
    assert these.all == {THIS}
    assert not these.up
    assert (these.absent, these.unread) == ({THIS: 15}, {OTHER: 20})
    assert THIS in these.since
    assert OTHER not in these.since


def test_who_is_back_goes_on_where_it_was() -> None:
    these = _absent()
    these.come(THIS, 100, 90, repairs=True, asks=True)
    assert (these.consumed[THIS], these.since[THIS]) == (15, 10)
    assert these.returned == {THIS: 90}
    assert not these.absent
