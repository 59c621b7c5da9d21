"""A decision goes out on flow ``control``, and as a desired value to an exporter that knows the state."""

import pytest
from twinlink_replay.twin.decision_path import DecisionPath

import twinlink
from twinlink.state.record import HEAD, MAX_NUMBER, Record, Slot, Stamp
from twinlink.testing import free_endpoint, patience, wait_until

VALIDITY_MS = 200_000  # so late a machine may come to look


@pytest.mark.parametrize("knows_the_state", [True, False])
def test_goes_out_on_the_flow_and_to_an_exporter_that_knows_the_state_as_desired(knows_the_state: bool) -> None:
    at = free_endpoint(1)
    with (
        twinlink.open("memory", listen=at, node="twin-1") as twin,
        twinlink.open("memory", connect=at, node="gnb-1") as gnb,
    ):
        path, desired, decisions = DecisionPath(twin), twin.state("prb-block"), gnb.receiver("control")
        gnb.wait_ready(patience())
        twin.wait_ready(patience())  # until then it sends to no peer
        if knows_the_state:
            gnb.state("prb-block").report("gnb-1", b"{}", column="installed")
            wait_until(lambda: "gnb-1" in desired)
        path.send(b"decision", "gnb-1", gnb.epoch, VALIDITY_MS)
        message = decisions.receive(patience())
        assert message is not None
        assert message.payload == b"decision"
        if knows_the_state:
            found = gnb.state("prb-block")
            wait_until(lambda: found["gnb-1"].desired)
            value = found["gnb-1"].desired
            assert value is not None
            assert value.payload == b"decision"
            assert value.remaining_s is not None
            assert value.remaining_s <= VALIDITY_MS / 1000
            path.send(b"for an earlier session", "gnb-1", gnb.epoch + 1, VALIDITY_MS)
            assert desired["gnb-1"].desired.payload == b"decision"  # type: ignore[union-attr]
        else:
            assert "gnb-1" not in desired


def test_a_state_that_takes_nothing_more_keeps_no_decision_from_leaving() -> None:
    at = free_endpoint(1)
    with (
        twinlink.open("memory", listen=at, node="twin-1") as twin,
        twinlink.open("memory", connect=at, node="gnb-1") as gnb,
    ):
        path, desired, decisions = DecisionPath(twin), twin.state("prb-block"), gnb.receiver("control")
        gnb.wait_ready(patience())
        twin.wait_ready(patience())  # until then it sends to no peer
        installed = Record(Slot("gnb-1", "installed"), Stamp(MAX_NUMBER, "gnb-1", gnb.epoch), 0, 0, None, b"{}")
        gnb.sender("state.prb-block").send(HEAD + installed.encode())
        wait_until(lambda: "gnb-1" in desired)
        path.send(b"decision", "gnb-1", gnb.epoch, 2000)
        message = decisions.receive(patience())
        assert message is not None
        assert message.payload == b"decision"
