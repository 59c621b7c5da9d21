"""Each slot is delivered or named, at ten times the pace of a gNB, while either side is killed and the path is cut."""

import signal
import sys

import pytest

from tests.c.building import needs_compiler
from tests.c.running import Program
from tests.c.soak import ended, soak
from tests.faults.world import why_not


def test_a_program_that_ends_by_itself_is_not_taken_for_one_that_was_killed() -> None:
    program = Program(sys.executable, "-c", "raise SystemExit(3)")
    program.wait()
    with pytest.raises(RuntimeError, match="exit code 3"):
        ended(program, signal.SIGKILL)


@needs_compiler
@pytest.mark.thorough
def test_each_slot_is_delivered_or_named() -> None:
    if reason := why_not():
        pytest.skip(reason)
    found = soak(10, 20_000)
    assert found["delivered"] > 0
    assert found["faults"] >= 3
    assert found["twice"] == 0
    assert found["unnamed"] <= found["held"]
    assert found["delivered"] + found["named"] + found["unnamed"] == found["offered"]
