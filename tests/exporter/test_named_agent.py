"""E3 over TCP, where the agent's host is a name with several addresses."""

from pathlib import Path

import pytest
import twinlink_e3 as e3

from tests.link import named_host
from twinlink.appkit import options

_SIDES = """
import time
import twinlink_e3 as e3
from twinlink_exporter.sockets import open_sockets
from twinlink_ran_emulator.sockets import bind_sockets

link, asked, listens, *connects = arguments
stands_for("127.0.0.2", "::1")

def endpoints(host, link):
    return e3.Endpoints(*(f"tcp://{host}:{port}" for port in (9990, 9991, 9999)), link)

def met(agent, dapp):
    asked_s = 0.0

    def turn(found):
        dapp.tick(time.monotonic_ns())
        return found()

    def asks():
        nonlocal asked_s
        if time.monotonic() - asked_s > 2:  # as the exporter: on a busy machine the resolver may take too long
            asked_s = time.monotonic()
            dapp.send_setup(b"setup")
        return turn(agent.setup_request) == b"setup"

    wait_until(asks)
    agent.answer_setup(b"reply")
    wait_until(lambda: turn(dapp.receive_setup) == b"reply")

    def passes():
        agent.send(b"indication")
        return turn(dapp.receive) == b"indication"

    wait_until(passes)
    wait_until(lambda: turn(lambda: agent.from_dapp() is None and dapp.can_send))
    dapp.send(b"control")
    wait_until(lambda: turn(agent.from_dapp) == b"control")

agent = bind_sockets(endpoints(listens, link))
for host in connects:
    dapp = open_sockets(endpoints(host, asked))
    met(agent, dapp)
    dapp.close()
    print(host)
agent.close()
"""


@pytest.mark.parametrize("link", e3.LINKS)
@pytest.mark.parametrize("listens", ["127.0.0.2", "[::1]"])
def test_the_agent_is_found_at_the_address_where_it_listens(link: str, listens: str, tmp_path: Path) -> None:
    assert named_host.run(tmp_path, _SIDES, link, e3.ANY_LINK, listens, "twin.example") == "twin.example\n"


@pytest.mark.parametrize("link", e3.LINKS)
def test_an_agent_on_a_name_listens_on_every_address(link: str, tmp_path: Path) -> None:
    told = named_host.run(tmp_path, _SIDES, link, link, "twin.example", "127.0.0.2", "[::1]")
    assert told == "127.0.0.2\n[::1]\n"


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("tcp://224.1.2.4:9990", "is a multicast group"),
        ("tcp://[fe80::1]:9990", "is link-local"),
        ("tcp://::1:9990", "an endpoint reads ipc:///path or tcp://address:port"),
    ],
)
def test_an_endpoint_is_the_address_of_one_host(endpoint: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = options.Parser()
    e3.add_endpoint_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--setup", endpoint])
    assert why in capsys.readouterr().err
