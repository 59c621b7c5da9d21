"""The other side by its name: a host with several addresses, one that is somewhere else now, one that comes later."""

import os
import shutil
from pathlib import Path

import pytest

import twinlink
from tests.link import named_host
from twinlink.transports.mosquitto import SBIN

_LINKS = """
transport, *arguments = arguments

def listens(address, node):
    return twinlink.open(transport, listen=f"tcp/{address}:7447", node=node)

def connects():
    return twinlink.open(transport, connect="tcp/twin.example:7447", node="ran")

"""

_CASES = {
    "the second of two addresses": """
stands_for("127.0.0.2", "127.0.0.3")
with listens("127.0.0.3", "twin"), connects() as link:
    link.wait_ready(patience())
    print(link.peers())
""",
    "an IPv6 address": """
stands_for("::1")
with listens("[::1]", "twin"), connects() as link:
    link.wait_ready(patience())
    print(link.peers())
""",
    "somewhere else": """
stands_for("127.0.0.2")
with connects() as link:
    with listens("127.0.0.2", "gone"):
        link.wait_ready(patience())
    stands_for("127.0.0.4")
    with listens("127.0.0.4", "twin"):
        wait_until(lambda: link.peers() == ["twin"])
        print(link.peers())
""",
    "not yet known": """
stands_for()
with connects() as link, listens("127.0.0.2", "twin"):
    try:
        link.wait_ready(0.5)
    except twinlink.PeerTimeout as error:
        assert "does not resolve" in str(error), error
    stands_for("127.0.0.2")
    link.wait_ready(patience())
    print(link.peers())
""",
    "one of two that are both there": """
stands_for("127.0.0.2", "127.0.0.3")
with listens("127.0.0.2", "twin") as first, listens("127.0.0.3", "other") as second, connects() as link:
    link.wait_ready(patience())
    link.sender("flow").send(b"whole")
    assert first.receiver("flow").receive(patience()).payload == b"whole"
    assert not second.peers() and not second.stats()["received"], second.stats()
    print(link.peers())
""",
    "two addresses, the first of them silent": """
import socket
full = socket.create_server(("127.0.0.2", 7447), backlog=0)  # the kernel drops every SYN when its queue is full
waiting = [socket.socket() for _ in range(4)]
for one in waiting:
    one.setblocking(False)
    one.connect_ex(full.getsockname())
stands_for("127.0.0.2", "127.0.0.3")
with listens("127.0.0.3", "twin"), connects() as link:
    link.wait_ready(patience())
    print(link.peers())
""",
}


_WHERE_SOMETHING_LISTENS = """
import socket, time
from twinlink.process.resolver import REFRESH_S, RepeatedLookup

stands_for("127.0.0.2", "127.0.0.3", "::1", "192.0.2.1")
places = RepeatedLookup("twin.example", 7447)
absent = {places.next_address() or time.sleep(REFRESH_S) or places.poll(patience()) for _ in range(4)}
assert len(absent) > 2, absent
with socket.create_server(("127.0.0.3", 7447)):
    places.poll(patience())
    seen = set()
    for _ in range(5):
        places.next_address()
        time.sleep(REFRESH_S)
        places.poll(patience())
        seen.add(places._address)
print(seen)
"""


def test_of_several_addresses_those_get_a_turn_where_something_listens(tmp_path: Path) -> None:
    """Or one where nothing listens would be tried for as long as a satellite takes; localhost mostly has two."""
    assert named_host.run(tmp_path, _WHERE_SOMETHING_LISTENS) == "{'127.0.0.3'}\n"


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
@pytest.mark.parametrize("case", _CASES)
def test_a_name_leads_to_the_other_side(transport: str, case: str, tmp_path: Path) -> None:
    assert _in_namespaces(tmp_path, _CASES[case], transport) == "['twin']\n"


_LISTENS_ON_A_NAME = """
stands_for(*arguments)
with listens("twin.example", "twin") as twin:
    for place in ("127.0.0.2", "[::1]"):
        if place.strip("[]") in arguments:
            with twinlink.open(transport, connect=f"tcp/{place}:7447", node=place) as link:
                link.wait_ready(patience())
                print(place, link.peers())
"""


@pytest.mark.parametrize("transport", ["zeromq", "zenoh", "mqtt"])
def test_a_listener_on_a_name_has_all_addresses_of_the_name(transport: str, tmp_path: Path) -> None:
    _needs_mosquitto(transport)
    told = _in_namespaces(tmp_path, _LISTENS_ON_A_NAME, transport, "::1", "127.0.0.2")
    assert told == "127.0.0.2 ['twin']\n[::1] ['twin']\n"


@pytest.mark.parametrize("transport", ["zeromq", "zenoh", "mqtt"])
def test_an_address_of_another_host_is_left_out_and_named(
    transport: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _needs_mosquitto(transport)
    told = _in_namespaces(tmp_path, _LISTENS_ON_A_NAME, transport, "192.0.2.1", "::1")
    assert told == "[::1] ['twin']\n"
    assert "listening on ::1 only, as this host does not have 192.0.2.1" in capfd.readouterr().err


_GROUP = """
stands_for("224.1.2.4")
try:
    listens("twin.example", "twin").close()
except twinlink.TransportError as error:
    print(error)
with connects() as link:
    try:
        link.wait_ready(0.5)
    except twinlink.PeerTimeout as error:
        print(error)
"""


@pytest.mark.parametrize("transport", ["zeromq", "zenoh", "mqtt"])
def test_a_name_that_stands_for_a_group_is_refused_with_the_reason(transport: str, tmp_path: Path) -> None:
    _needs_mosquitto(transport)
    told = _in_namespaces(tmp_path, _GROUP, transport).splitlines()
    assert ["stands for a multicast group" in line for line in told] == [True, True], told


_EVERYWHERE = """
subprocess.run(["sysctl", "-qw", f"net.ipv6.bindv6only={arguments[1]}"], check=True)
with listens("[::]", "twin"), twinlink.open(transport, connect=f"tcp/{arguments[0]}:7447", node="ran") as link:
    link.wait_ready(patience())
    print(link.peers())
"""


@pytest.mark.parametrize(("address", "bindv6only"), [("127.0.0.1", 0), ("127.0.0.1", 1), ("[::1]", 0)])
@pytest.mark.parametrize("transport", ["zeromq", "zenoh", "mqtt", "websocket", "tcp"])
def test_a_listener_on_every_address_of_ipv6_has_those_of_ipv4(
    transport: str, address: str, bindv6only: int, tmp_path: Path
) -> None:
    """Whatever the default of the host is."""
    _needs_mosquitto(transport)
    assert _in_namespaces(tmp_path, _EVERYWHERE, transport, address, str(bindv6only)) == "['twin']\n"


_LINK_LOCAL = """
import json, time
run = lambda *command: subprocess.run(command, check=True, capture_output=True).stdout
run("ip", "link", "add", "here", "type", "veth", "peer", "name", "there")
for one in ("here", "there"):
    run("sysctl", "-qw", f"net.ipv6.conf.{one}.accept_dad=0")
    run("ip", "link", "set", one, "up")

def link_local():
    found = json.loads(run("ip", "-j", "-6", "address", "show", "dev", "here", "scope", "link"))
    return [entry["local"] for device in found for entry in device.get("addr_info", []) if not entry.get("tentative")]

wait_until(link_local)
address, = link_local()
with listens(f"[{address}%here]", "twin"):
    with twinlink.open(transport, connect=f"tcp/[{address}%here]:7447", node="ran") as link:
        link.wait_ready(patience())
        print(link.peers())
"""


@pytest.mark.parametrize("transport", ["zeromq", "zenoh", "mqtt"])
def test_a_link_local_address_takes_its_interface(transport: str, tmp_path: Path) -> None:
    _needs_mosquitto(transport)
    assert _in_namespaces(tmp_path, _LINK_LOCAL, transport) == "['twin']\n"


def _needs_mosquitto(transport: str) -> None:
    if transport == "mqtt" and not shutil.which("mosquitto", path=f"{os.environ['PATH']}:{SBIN}"):
        pytest.skip("mosquitto is not installed: MQTT was not tried")


def _in_namespaces(tmp_path: Path, program: str, *arguments: str) -> str:
    return named_host.run(tmp_path, _LINKS + program, *arguments)


def test_listening_on_a_name_that_nobody_knows_says_so() -> None:
    with pytest.raises(twinlink.TransportError, match=r"listen on tcp/no-such-host\.invalid:7447"):
        twinlink.open("zeromq", listen="tcp/no-such-host.invalid:7447")
