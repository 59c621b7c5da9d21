"""The length of decisions and results: the limit holds all that the format allows, and is looked at before reading."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twinlink.control import MAX_ID_LENGTH, MAX_OCTETS, MAX_PRBS, MAX_TEXT_LENGTH, E3Control, PrbBlock, PrbBlockResult
from twinlink.errors import MalformedPayload, PayloadTooLarge
from twinlink.identity import Identity
from twinlink.identity.watched import WatchedIdentity
from twinlink.signed_payload import MAX_SIGNED_OCTETS, Refusal, Signer, Verifier

LONGEST_ID, LONGEST_TEXT = "\U0001f600" * MAX_ID_LENGTH, "\U0001f600" * MAX_TEXT_LENGTH
PRBS = tuple(range(MAX_PRBS))
LATEST_NS = 2**63 - 1
LIST_OCTETS = 40  # that Python takes for an empty list in JSON, at least


def block(id: str, reason: str) -> PrbBlock:
    return PrbBlock(id, PRBS, LATEST_NS, 2**31 - 1, reason)


def result(id: str, reason: str) -> PrbBlockResult:
    return PrbBlockResult(id, "installed", PRBS, LATEST_NS, reason, E3Control(2**32 - 1, *[LATEST_NS] * 4))


@pytest.mark.parametrize("make", [block, result])
def test_the_longest_that_the_format_allows_fits(make: Callable[[str, str], PrbBlock | PrbBlockResult]) -> None:
    longest = make(LONGEST_ID, LONGEST_TEXT)
    assert type(longest).decode(longest.encode()) == longest
    with pytest.raises(PayloadTooLarge, match=r"at most 16384 are taken, so shorten its id .* and its reason"):
        make(LONGEST_ID, LONGEST_TEXT * 2).encode()


def peak_octets(call: Callable[[], Any]) -> int:
    """Of the memory that a call takes."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", [PrbBlock, PrbBlockResult])
def test_what_is_longer_is_not_parsed(kind: type[PrbBlock] | type[PrbBlockResult]) -> None:
    lists = 1_000_000
    payload = b"[" + b"[]," * lists + b"[]]"

    def decode() -> None:
        with pytest.raises(MalformedPayload, match=f"{len(payload)} octets, of which at most {MAX_OCTETS} are read"):
            kind.decode(payload)

    assert peak_octets(decode) < lists * LIST_OCTETS // 100


def test_what_is_longer_is_neither_signed_nor_verified(tmp_path: Path) -> None:
    watched = WatchedIdentity(Identity.create(tmp_path / "gnb-1", "gnb-1", "gnb"))
    with pytest.raises(PayloadTooLarge, match=f"at most {MAX_OCTETS} are signed"):
        Signer(watched, 1).sign("control-result", bytes(MAX_OCTETS + 1))
    signed = Signer(watched, 1).sign("control-result", bytes(MAX_OCTETS))
    assert len(signed) == MAX_SIGNED_OCTETS
    verifier, payload = Verifier(watched, 1), signed + bytes(16_000_000)

    def verify() -> None:
        verdict = verifier.verify("control-result", payload, "gnb-1", 1)
        assert isinstance(verdict, Refusal)
        assert verdict.rule == "length"

    assert peak_octets(verify) < 1_000_000
    verdict = verifier.verify("control-result", signed, "gnb-1", 1)  # is looked at: its own key is not a peer's
    assert isinstance(verdict, Refusal)
    assert verdict.rule == "key"
