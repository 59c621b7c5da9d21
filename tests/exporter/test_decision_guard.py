"""The guard: rejected decisions never reach the RAN, and the reason names the rule."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twinlink_exporter.decision_guard import Limits, Rejection, check

from twinlink.control import PrbBlock

NOW_NS = 1_700_000_000_000_000_000
LIMITS = Limits(n_prbs=106, protected=frozenset({0, 1, 50}), max_age_ms=500, max_validity_ms=10_000)


def block(prbs: tuple[int, ...] = (60, 61), age_ms: int = 0, validity_ms: int = 2000, id: str = "b-1") -> PrbBlock:
    return PrbBlock(id, tuple(prbs), NOW_NS - age_ms * 1_000_000, validity_ms, "test")


@pytest.mark.parametrize(
    "good",
    [
        block(),
        block(prbs=()),
        block(prbs=(105,)),
        block(age_ms=500),
        block(age_ms=-500),
        block(validity_ms=10_000),
        block(prbs=(), age_ms=60_000),
        block(prbs=(), age_ms=-60_000),  # it is never too late to take a block back
    ],
)
def test_what_keeps_the_rules_passes_unchanged(good: PrbBlock) -> None:
    assert check(good.encode(), LIMITS, NOW_NS) == good


@pytest.mark.parametrize(
    ("bad", "rule"),
    [
        (block(prbs=(60, 106, 107)), "range: PRBs 106-107 are outside"),
        (block(prbs=(1, 50, 60)), "protected: PRBs 1,50"),
        (block(age_ms=501), "age: decided 501 ms ago"),
        (block(age_ms=-501), "age: decided 501 ms in the future"),
        (block(validity_ms=10_001), "validity: 10001 ms asked"),
    ],
)
def test_each_rule_refuses_and_names_itself(bad: PrbBlock, rule: str) -> None:
    verdict = check(bad.encode(), LIMITS, NOW_NS)
    assert isinstance(verdict, Rejection)
    assert verdict.id == "b-1"
    assert verdict.reason.startswith(rule)


@pytest.mark.parametrize(
    ("change", "id"),
    [
        ({"prbs": [61, 60]}, "b-1"),
        ({"prbs": [60, 60]}, "b-1"),
        ({"prbs": [True]}, "b-1"),
        ({"prbs": "60"}, "b-1"),
        ({"validity_ms": 0}, "b-1"),
        ({"issued_ns": 1.5}, "b-1"),
        ({"extra": 1}, "b-1"),
        ({"id": ""}, None),
        ({"id": 7}, None),
        ({"id": "x" * 65}, None),
    ],
)
def test_a_wrong_schema_is_refused_and_answered_where_it_has_an_id(change: dict[str, Any], id: str | None) -> None:
    verdict = check(json.dumps({**json.loads(block().encode()), **change}).encode(), LIMITS, NOW_NS)
    assert isinstance(verdict, Rejection)
    assert (verdict.id, verdict.reason[:7]) == (id, "schema:")


@given(
    st.binary(max_size=100)
    | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps).map(str.encode)
)
def test_garbage_is_refused_without_an_exception(payload: bytes) -> None:
    assert check(payload, LIMITS, NOW_NS) == Rejection(None, check(payload, LIMITS, NOW_NS).reason)
