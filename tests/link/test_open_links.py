"""What a person at an interactive prompt sees of links, and what is said where a cell that opens one runs again."""

import subprocess
import sys

import pytest

import twinlink
from twinlink.testing import free_endpoint, patience
from twinlink.transport_options import TransportName

TWICE = """
import sys, twinlink
transport, named, endpoint = sys.argv[1:]
def cell():
    return twinlink.open(transport, listen=endpoint, node="twin-1")
kept = [cell()]
link = kept[0] if named == "named" else None
try:
    cell()
except twinlink.TransportError as error:
    print(error)
    said = str(error)
    exec(said[said.index("call ") + 5:])
cell().close()
print("closed")
"""


def test_what_is_shown_of_a_link() -> None:
    at = free_endpoint()
    with twinlink.open("zeromq", listen=at, node="twin-1") as twin:
        assert repr(twin) == f"<twinlink.Link 'twin-1': zeromq listening on {at}, peers up: none>"
        sender, receiver = twin.sender("control"), twin.receiver("spectrum")
        with twinlink.open("zeromq", connect=at, node="gnb-1") as gnb:
            gnb.receiver("control")
            twin.wait_ready(patience())
            gnb.wait_ready(patience())
            assert repr(gnb) == f"<twinlink.Link 'gnb-1': zeromq connecting to {at}, peers up: twin-1>"
            sender.send(b"")
            sender.flush(patience())
            gnb.sender("spectrum").send(b"")
            gnb.sender("spectrum").flush(patience())
            assert repr(sender) == (
                "<twinlink.Sender of flow 'control': 1 sent, 0 not acknowledged, 0 lost; "
                f"zeromq listening on {at}, peers up: gnb-1>"
            )
            assert repr(receiver) == (
                "<twinlink.Receiver of flow 'spectrum': 1 received, 1 waiting, 0 missing; "
                f"zeromq listening on {at}, peers up: gnb-1>"
            )
    assert repr(twin) == f"<twinlink.Link 'twin-1': zeromq listening on {at}, closed>"
    assert repr(sender).endswith("closed>")
    assert repr(receiver).endswith("closed>")


@pytest.mark.parametrize("transport", ["zeromq", "zenoh", "mqtt", "memory"])
@pytest.mark.parametrize("named", ["named", "unnamed"])
def test_a_cell_that_opens_a_link_again_is_told_which_one_holds_the_port_and_how_to_close_it(
    transport: TransportName, named: str
) -> None:
    at = free_endpoint()
    done = subprocess.run(
        [sys.executable, "-c", TWICE, transport, named, at],
        capture_output=True, text=True, timeout=patience(60), check=False,
    )  # fmt: skip
    said, *rest = done.stdout.splitlines()
    call = "link.close()" if named == "named" else "twinlink.open_links()[0].close()"
    assert f"<twinlink.Link 'twin-1': {transport} listening on {at}, peers up: none>" in said, done.stderr
    assert said.endswith(f"to close that, call {call}")
    assert "ss -ltnp" not in said
    assert rest == ["closed"], done.stderr


def test_the_port_behind_counts_for_transports_with_two_and_other_addresses_do_not() -> None:
    at = free_endpoint()
    port = int(at.rpartition(":")[2])
    with twinlink.open("zeromq", listen=at, node="twin-1"):
        with pytest.raises(
            twinlink.TransportError, match=r"holds it: <twinlink.Link 'twin-1'.*leave two ports for each"
        ):
            twinlink.open("zeromq", listen=f"tcp/0.0.0.0:{port + 1}")
        twinlink.open("zeromq", listen=f"tcp/127.0.0.2:{port}").close()


def test_links_are_listed_as_they_were_opened_until_they_are_closed() -> None:
    before = twinlink.open_links()
    one, other = (twinlink.open("memory", listen=free_endpoint()) for _ in range(2))
    assert twinlink.open_links() == [*before, one, other]
    one.close()
    assert twinlink.open_links() == [*before, other]
    other.close()
