"""Numbers of `send_array` as lines."""

import numpy as np
import pytest
from twinlink_live.strips import OF_MANY, REPEATED, Strip, summary

from twinlink.errors import MalformedPayload
from twinlink.npy import encode


def test_few_numbers_have_a_line_each() -> None:
    assert summary(encode(np.array(2.5))) == (["[0]"], [2.5])
    assert summary(encode(np.array([1, 2, 3], np.int16))) == (["[0]", "[1]", "[2]"], [1.0, 2.0, 3.0])
    assert summary(encode(np.array([3 + 4j]))) == (["[0]"], [5.0])
    assert summary(encode(np.array([True, False]))) == (["[0]", "[1]"], [1.0, 0.0])


def test_of_many_the_least_mean_and_greatest() -> None:
    assert summary(encode(np.arange(101))) == (list(OF_MANY), [0.0, 50.0, 100.0])


@pytest.mark.parametrize("array", [np.array(["text"]), np.empty(0)])
def test_what_is_no_number_is_not_drawn(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> None:
    with pytest.raises(MalformedPayload):
        summary(encode(array))


def test_a_strip_has_the_values_of_the_last_second_and_no_nan() -> None:
    strip = Strip()
    for step in range(REPEATED + 5):
        strip.add(encode(np.array([step, np.nan])), step)
    described = strip.described()
    assert described["names"] == ["[0]", "[1]"]
    assert described["values"] == [[step, float(step), None] for step in range(5, REPEATED + 5)]
    strip.add(encode(np.arange(9)), 99)  # another shape begins anew
    assert strip.described()["values"] == [[99, 0.0, 4.0, 8.0]]
