"""What an endpoint may be: the address of one host, with one meaning."""

import pytest

import twinlink
from twinlink.process.ip_address import bracketed, family_of, is_address, with_zone_index
from twinlink.transports import Endpoint


@pytest.mark.parametrize(
    "text",
    [
        "tcp/10.0.0.5:7447",
        "tcp/0.0.0.0:7447",
        "tcp/[::]:7447",
        "tcp/[fd00::5]:7447",
        "tcp/[::ffff:10.0.0.5]:7447",
        "tcp/[fe80::1%lo]:7447",
        "tcp/[fe80::1%1]:7447",
        "tcp/twin-1.example:7447",
        "tcp/twin.example.:7447",
        "tcp/1und1:7447",
    ],
)
def test_an_endpoint_is_written_as_it_was_read(text: str) -> None:
    assert str(Endpoint.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("10.0.0.5", "tcp/10.0.0.5:7447"),
        ("twin", "tcp/twin:7447"),
        ("twin:80", "tcp/twin:80"),
        ("tcp/twin", "tcp/twin:7447"),
        ("[fd00::5]", "tcp/[fd00::5]:7447"),
        ("[fd00::5]:80", "tcp/[fd00::5]:80"),
        ("fd00::5", "tcp/[fd00::5]:7447"),
        ("fe80::1%lo", "tcp/[fe80::1%lo]:7447"),
    ],
)
def test_port_and_brackets_may_be_left_out_where_the_meaning_is_plain(text: str, endpoint: str) -> None:
    assert str(Endpoint.parse(text)) == endpoint
    with twinlink.open("zeromq", connect=text) as link:
        assert link.endpoint == endpoint


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("tcp://twin:80", "write twin:80"),
        ("mqtt://user@twin:80/a/b", "write twin:80"),
        ("udp/twin:80", "write twin:80"),
        (":80", "the host is missing; write 127.0.0.1:80"),
        ("80", "the host is missing; write 127.0.0.1:80"),
        ("*:80", "write 0.0.0.0:80 for every address"),
        ("fd00::5:80", r"write \[fd00::5:80\], or \[fd00::5\]:80 if 80 is the port"),
        (("twin", 80), "80 is not of the form host or host:port"),
    ],
)
def test_what_people_write_of_other_tools_is_answered_with_what_to_write(text: str, advice: str) -> None:
    with pytest.raises(twinlink.ConfigurationError, match=advice):
        twinlink.open("zeromq", connect=text)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "[::ffff:0.0.0.0]"])
def test_no_link_connects_to_the_address_on_which_a_listener_takes_all(host: str) -> None:
    with pytest.raises(twinlink.ConfigurationError, match="stands for every address of the host that listens"):
        twinlink.open("zeromq", connect=f"tcp/{host}:7447")


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("224.1.2.4", "is a multicast group, which twinlink does not join"),
        ("[ff02::1]", "is a multicast group"),
        ("[ff02::1%lo]", "is a multicast group"),
        ("[::ffff:224.1.2.4]", "is a multicast group"),
        ("255.255.255.255", "is a broadcast address"),
        ("[::ffff:255.255.255.255]", "is a broadcast address"),
        ("127.255.255.255", "is a broadcast address"),  # of the network of the loopback interface
        ("[fe80::1]", r"is link-local: add the interface .* \[fe80::1%eth0\]"),
        ("[fe80::1%nonesuch]", "this host has no interface nonesuch"),
        ("[fe80::1%4000000]", "this host has no interface 4000000"),
        ("[fe80::1%9999999999]", "this host has no interface 9999999999"),
        ("[fe80::1%]", "is not of the form"),
        ("[fd00::5%lo]", "only a link-local address .* leave out %lo"),
        ("[10.0.0.5]", "is not an IPv6 address"),
        ("[1:2:3]", "is not an IPv6 address"),
        ("::1", r"two meanings: write \[::1:7447\], or \[::1\]:7447 if"),
        ("10.1", "is not an IPv4 address: that has four numbers"),
        ("010.0.0.5", "is not an IPv4 address"),
        ("0x7f000001", "is not an IPv4 address"),
        ("10.0.0.256", "is not an IPv4 address"),
        ("a..b", "between the dots"),
    ],
)
def test_what_is_not_the_address_of_one_host_is_refused_with_the_reason(host: str, why: str) -> None:
    with pytest.raises(twinlink.ConfigurationError, match=why):
        twinlink.open("zeromq", listen=f"tcp/{host}:7447")
    with pytest.raises(twinlink.ConfigurationError, match=why):
        twinlink.open("zeromq", connect=f"tcp/{host}:7447")


def test_parts_of_addresses() -> None:
    assert [bracketed(host) for host in ("10.0.0.5", "::1", "[::1]", "twin")] == ["10.0.0.5", "[::1]", "[::1]", "twin"]
    assert is_address("[fe80::1%eth0]")
    assert not is_address("twin.example")
    assert family_of("10.0.0.5") != family_of("fe80::1%eth0")
    assert with_zone_index("fe80::1%lo") == "fe80::1%1"
    assert with_zone_index("fe80::1%7") == "fe80::1%7"
    assert with_zone_index("::1") == "::1"
