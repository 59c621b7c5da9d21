"""The other side by its name: a host with several addresses, one that is somewhere else now, one that comes later."""

import subprocess
import sys
from pathlib import Path

import pytest

import twinlink
from twinlink.testing import patience

_BEGINS = """
import subprocess, sys
import twinlink
from twinlink.testing import patience, wait_until

transport, hosts = sys.argv[1:3]
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)

def stands_for(*addresses):
    with open(hosts, "w") as file:
        file.writelines(f"{address} twin.example\\n" for address in addresses)

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
}


_WHERE_SOMETHING_LISTENS = """
import socket, time
from twinlink.process.resolver import REFRESH_S, RepeatedLookup

stands_for("127.0.0.2", "127.0.0.3", "::1", "192.0.2.1")
places = RepeatedLookup("twin.example", 7447)
nobody = {places.next_address() or time.sleep(REFRESH_S) or places.poll(patience()) for _ in range(4)}
assert len(nobody) > 2, nobody
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
    """Or one where nobody is would be tried for as long as a satellite takes; localhost mostly has two."""
    assert _in_namespaces(tmp_path, _WHERE_SOMETHING_LISTENS) == "{'127.0.0.3'}\n"


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
@pytest.mark.parametrize("case", _CASES)
def test_a_name_leads_to_the_other_side(transport: str, case: str, tmp_path: Path) -> None:
    assert _in_namespaces(tmp_path, _CASES[case], transport) == "['twin']\n"


def _in_namespaces(tmp_path: Path, program: str, transport: str = "none") -> str:
    """What the program prints where ``twin.example`` stands for what it says."""
    unshare = ["unshare", "--net", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces cannot be made here (root is needed): no name was given addresses")
    hosts = tmp_path / "hosts"
    hosts.touch()
    command = [*unshare, sys.executable, "-c", _BEGINS + program, transport, str(hosts)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * patience(), check=False)
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


def test_listening_on_a_name_that_nobody_knows_says_so() -> None:
    with pytest.raises(twinlink.TransportError, match=r"listen on tcp/no-such-host\.invalid:7447"):
        twinlink.open("zeromq", listen="tcp/no-such-host.invalid:7447")
