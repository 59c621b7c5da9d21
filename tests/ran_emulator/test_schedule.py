import pytest
from hypothesis import given
from hypothesis import strategies as st
from twinlink_ran_emulator.schedule import Pace, Schedule


@given(record=st.integers(0, 10**9), factor=st.floats(0.01, 1000))
def test_the_schedule_does_not_drift(record: int, factor: float) -> None:
    schedule = Schedule(123, 10_000_000, Pace(factor))
    assert (
        abs(schedule.due_ns(record) - 123 - record * 10_000_000 / factor) <= 0.5 + record * 10_000_000 / factor * 1e-15
    )


def test_flat_out_is_always_due() -> None:
    assert Schedule(5, 10_000_000, Pace.parse("max")).due_ns(1000) == 5


@pytest.mark.parametrize("text", ["", "0", "-1", "inf", "nan", "fast"])
def test_a_pace_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="factor above 0"):
        Pace.parse(text)
