"""Which refusals of connections are reported."""

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
