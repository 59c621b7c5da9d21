"""What the twin asks of the gNB, checked before it gets there.

The gNB protects nothing itself: blocking the PRBs of SSB, CORESET0 or PRACH ends every new attach.  Where they lie
follows from the gNB's configuration, which E3 does not tell, so the operator names them (``--protect-prbs``).
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from twinlink.control import MAX_ID_LENGTH, PrbBlock
from twinlink.errors import MalformedPayload

MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What is let through.

    Attributes:
        n_prbs: PRBs of the carrier.
        protected: PRBs that are never blocked.
        max_age_ms: between the twin's decision (its clock) and now (ours), in either direction; an empty list, which
            takes a block back, is never too old.
        max_validity_ms: how long a block may ask to stand without renewal.
    """

    n_prbs: int
    protected: frozenset[int] = frozenset()
    max_age_ms: int = 500
    max_validity_ms: int = 10_000


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a decision goes no further; ``id`` is None when the decision has none that could be answered."""

    id: str | None
    reason: str


def check(payload: bytes | memoryview, limits: Limits, now_ns: int) -> PrbBlock | Rejection:
    """The block that the payload asks for, or why it is refused.

    Args:
        payload: of a message on flow ``control``.
        limits: the rules.
        now_ns: Unix time in ns on this host's clock.
    """
    try:
        block = PrbBlock.decode(payload)
    except MalformedPayload as error:
        return Rejection(_identifier(payload), f"schema: {error}")
    if reason := _objection(block, limits, now_ns):
        return Rejection(block.id, reason)
    return block


def parse_prbs(text: str) -> frozenset[int]:
    """``"0-3,50"`` as a set; empty text is the empty set.  Raises ValueError."""
    prbs: set[int] = set()
    for part in filter(None, text.replace(" ", "").split(",")):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            raise ValueError(f"{part!r} is neither a PRB nor a range of PRBs, as in 0-3,50")
        low, high = int(first), int(last)
        prbs.update(range(low, high + 1))
    return frozenset(prbs)


def format_prbs(prbs: Iterable[int]) -> str:
    """The inverse of `parse_prbs`, for people: ``"0-3,50"``."""
    runs: list[list[int]] = []
    for prb in sorted(prbs):
        if runs and prb == runs[-1][1] + 1:
            runs[-1][1] = prb
        else:
            runs.append([prb, prb])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _objection(block: PrbBlock, limits: Limits, now_ns: int) -> str | None:
    if block.prbs and block.prbs[-1] >= limits.n_prbs:
        outside = format_prbs(prb for prb in block.prbs if prb >= limits.n_prbs)
        return f"range: PRBs {outside} are outside the carrier's 0-{limits.n_prbs - 1}"
    if protected := limits.protected.intersection(block.prbs):
        return f"protected: PRBs {format_prbs(protected)} must stay usable"
    age_ms = (now_ns - block.issued_ns) / MS if block.prbs else 0
    if age_ms > limits.max_age_ms:
        return (
            f"age: decided {age_ms:.0f} ms ago by the twin's clock against ours, more than {limits.max_age_ms} ms; "
            "late, or the clocks differ"
        )
    if age_ms < -limits.max_age_ms:
        return (
            f"age: decided {-age_ms:.0f} ms in the future by the twin's clock against ours, more than "
            f"{limits.max_age_ms} ms; the clocks differ"
        )
    if block.validity_ms > limits.max_validity_ms:
        return f"validity: {block.validity_ms} ms asked, at most {limits.max_validity_ms} ms; renew it instead"
    return None


def _identifier(payload: bytes | memoryview) -> str | None:
    """The id of a decision that is otherwise wrong, so that the twin gets its answer."""
    try:
        value = json.loads(bytes(payload))["id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return value if isinstance(value, str) and 1 <= len(value) <= MAX_ID_LENGTH else None
