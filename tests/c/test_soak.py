"""Each slot is delivered or named, at ten times the pace of a gNB, while either side is killed and the path is cut."""

import pytest

from tests.c.building import needs_compiler
from tests.c.soak import soak
from tests.faults.world import why_not

pytestmark = [needs_compiler, pytest.mark.thorough]


def test_each_slot_is_delivered_or_named() -> None:
    if reason := why_not():
        pytest.skip(reason)
    found = soak(10, 20_000)
    assert found["delivered"] > 0
    assert found["faults"] >= 3
    assert found["twice"] == 0
    assert found["unnamed"] <= found["held"]
    assert found["delivered"] + found["named"] + found["unnamed"] == found["offered"]
