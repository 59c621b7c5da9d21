"""The payload that sets a sensing policy, beside that of a PRB block on the same flow."""

import json

import pytest

from twinlink.control import PrbBlock, SensingPolicy, decode_decision
from twinlink.errors import MalformedPayload

POLICY = SensingPolicy("p-1", (0, 0x3FFF, 0x3F80), 1_795_000_000_000_000_000, 5000, "hears more")
FIELDS = {"id": "p-1", "mask_per_slot": [1], "issued_ns": 1, "validity_ms": 1, "reason": ""}


def test_each_decision_is_read_as_what_it_is() -> None:
    block = PrbBlock("b-1", (4, 5), 1, 5000)
    assert decode_decision(POLICY.encode()) == POLICY
    assert decode_decision(block.encode()) == block
    assert SensingPolicy.decode(memoryview(POLICY.encode())) == POLICY
    assert json.loads(POLICY.encode())["mask_per_slot"] == [0, 0x3FFF, 0x3F80]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"mask_per_slot": [0x4000]}, "0 to 16383"),
        ({"mask_per_slot": [-1]}, "0 to 16383"),
        ({"mask_per_slot": [True]}, "0 to 16383"),
        ({"mask_per_slot": [1] * 161}, "at most 160"),
        ({"mask_per_slot": "1"}, "at most 160"),
        ({"prbs": []}, "exactly the fields"),
        ({"validity_ms": 0}, "validity_ms"),
        ({"id": ""}, "id must be"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, object], why: str) -> None:
    with pytest.raises(MalformedPayload, match=why):
        decode_decision(json.dumps(FIELDS | changes).encode())


@pytest.mark.parametrize("payload", [b"", b"[]", b'["mask_per_slot"]', b'"mask_per_slot"', b"{", b'{"prbs": 1}'])
def test_what_is_no_decision_is_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedPayload):
        decode_decision(payload)
