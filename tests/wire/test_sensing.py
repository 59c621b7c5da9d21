"""The payload of sensing ranges: octets, and what is refused."""

import pytest

from twinlink import MalformedPayload
from twinlink.sensing import FreeRange, SensingRanges

# The message of `ranges`, written down from the table of the module.
GOLDEN = bytes.fromhex(
    "01 02 03ff 0013 0001 17979cfe362a0015 000000e8d4a51005 00000063 00000002 00000000 0002 0005 0028 0d01 0000 0111"
)


def ranges() -> SensingRanges:
    free = (FreeRange(0, 2, 5, 40), FreeRange(13, 1, 0, 273))
    return SensingRanges(1023, 19, free, 1_700_000_000_000_000_021, 1_000_000_000_005, 1, 99, 2)


def test_octets_are_those_of_the_table() -> None:
    assert ranges().encode() == GOLDEN
    assert SensingRanges.decode(memoryview(GOLDEN)) == ranges()
    nothing = SensingRanges(0, 0, (), 1)
    assert SensingRanges.decode(nothing.encode()) == nothing


@pytest.mark.parametrize("payload", [b"", GOLDEN[:-1], GOLDEN + b"\0", b"\x02" + GOLDEN[1:], b"\x01\x03" + GOLDEN[2:]])
def test_other_payloads_are_refused(payload: bytes) -> None:
    with pytest.raises(MalformedPayload):
        SensingRanges.decode(payload)


def test_what_does_not_fit_is_not_encoded() -> None:
    with pytest.raises(ValueError, match="cannot be encoded"):
        SensingRanges(0, 0, (FreeRange(-1, 14, 0, 5),), 1).encode()
