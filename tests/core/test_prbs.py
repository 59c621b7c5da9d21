import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlink.prbs import format_prbs, parse_prbs


@given(st.sets(st.integers(0, 272)))
def test_prb_lists_survive_their_text(prbs: set[int]) -> None:
    assert parse_prbs(format_prbs(prbs)) == prbs


@pytest.mark.parametrize("text", ["3-1", "a", "1-", "-3", "1;2"])
def test_a_wrong_prb_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - which one does not matter
        parse_prbs(text)
