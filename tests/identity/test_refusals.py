"""Which refusals of connections are reported."""

from pathlib import Path

from twinlink.transports import identity_advice
from twinlink.transports.refusals import Refusal, Refusals


def test_each_host_is_reported_once_a_second() -> None:
    refusals = Refusals()
    addresses = ["10.0.0.1:4", "10.0.0.1:5", "10.0.0.2", "2001:db8::1", "2001:db8::2", "[2001:db8::2]:4", "[::1]:4"]
    for address in addresses:
        refusals.add(Refusal("", address, "unknown"))
    reported = [refusal.address for refusal in refusals.take()]
    assert reported == ["10.0.0.1:4", "10.0.0.2", "2001:db8::1", "2001:db8::2", "[::1]:4"]
    assert refusals.count == len(addresses)
    assert refusals.take() == []


def test_a_name_of_others_does_nothing_where_it_is_shown() -> None:
    """A certificate that is not trusted, a router or a broker may say any name: to a terminal, and to a shell."""
    refusals = Refusals()
    refusals.add(Refusal("gnb\x1b[2J\n", "10.0.0.1", "unknown"))
    (reported,) = refusals.take()
    assert reported.identity == r"'gnb\x1b[2J\n'"
    assert "--as '$(reboot)' --identity" in identity_advice.refused_behind("$(reboot)", "the router", Path("DIR"))
    assert identity_advice.refused_behind("\x1b[2J", "the router", Path("DIR")).isprintable()
