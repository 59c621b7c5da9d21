"""Which roles may desire, where the nodes have identities: the receiving side decides."""

from pathlib import Path

import pytest

import twinlink
from tests.identity.nodes import Node, make
from twinlink.state.record import Record, Slot, Stamp
from twinlink.testing import free_endpoint, patience, wait_until

KEY = "cell-1"


def opened(node: Node, **side: str) -> twinlink.Link:
    return twinlink.open("zeromq", identity=node.folder, **side)  # type: ignore[arg-type]


def desired(link: twinlink.Link) -> bytes | None:
    item = link.state("cells").get(KEY)
    return item.desired.payload if item is not None and item.desired is not None else None


def test_only_a_twin_desires_and_a_twin_that_restarts_learns_what_it_desired(tmp_path: Path) -> None:
    at = free_endpoint()
    twin, gnb, other, observer = (
        make(tmp_path, name, role)  # type: ignore[arg-type]
        for name, role in (("twin-1", "twin"), ("gnb-1", "gnb"), ("gnb-2", "gnb"), ("observer-1", "observer"))
    )
    for node in (gnb, other, observer):
        twin.trust(node)
        node.trust(twin)
    with opened(gnb, connect=at) as gnb_link, opened(observer, connect=at) as watching:
        reporting = gnb_link.state("cells")
        with pytest.raises(twinlink.ConfigurationError, match="role gnb, which may report and not desire"):
            reporting.desire(KEY, b"mine")
        with pytest.raises(twinlink.ConfigurationError, match="role observer, which sets nothing"):
            watching.state("cells").desire(KEY, b"mine")
        with pytest.raises(twinlink.ConfigurationError, match="role observer, which sends nothing"):
            watching.state("cells").report(KEY, b"mine")
        with opened(twin, listen=at) as deciding:
            version = deciding.state("cells").desire(KEY, b"wanted")
            wait_until(lambda: desired(gnb_link) == b"wanted")
            reporting.report(KEY, b"on", answers=version)
            wait_until(lambda: len(watching.state("cells").get(KEY) or ()) == 2)

        with opened(twin, listen=at) as again:
            wait_until(lambda: desired(again) == b"wanted")
            assert again.state("cells")[KEY].desired.set_by == "twin-1"  # type: ignore[union-attr]
            with opened(other, connect=at) as late:
                wait_until(lambda: KEY in late.state("cells"))
                assert desired(late) is None  # gnb-1 might have made it up
                again.state("cells").desire(KEY, b"wanted again")
                wait_until(lambda: desired(late) == b"wanted again")


def test_a_gnb_that_desires_all_the_same_is_not_obeyed(tmp_path: Path) -> None:
    at = free_endpoint()
    listener, forger = make(tmp_path, "gnb-1", "gnb"), make(tmp_path, "gnb-2", "gnb")
    listener.trust(forger)
    forger.trust(listener)
    with opened(listener, listen=at) as link, opened(forger, connect=at) as forging:
        state = link.state("cells")
        forging.wait_ready(patience())
        forged = [
            Record(Slot(KEY, column), Stamp(1, "twin-1", 1), 1, 0, None, b"x") for column in ("desired", "reported")
        ]
        forging.sender("state.cells").send(b"tK\x01\x00" + b"".join(one.encode() for one in forged))
        forging.sender("state.cells").send(b"tK\x01\x00garbage")
        wait_until(lambda: state.stats().get("malformed"))
        assert desired(link) is None
        assert state.stats()["role"] == 1
        assert state[KEY].reported is not None
