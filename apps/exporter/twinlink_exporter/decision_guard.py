"""Checks the twin's decisions before they reach the gNB.

The gNB protects nothing itself: blocking the PRBs of SSB, CORESET0 or PRACH ends every new attach.  Their position
follows from the gNB's configuration, which E3 does not provide, so the operator names them (``--protect-prbs``).
"""

import json
from dataclasses import dataclass
from typing import Literal, cast

from twinlink.control import MAX_ID_LENGTH, MAX_OCTETS, Decision, SensingPolicy, decode_decision
from twinlink.errors import MalformedPayload
from twinlink.prbs import format_prbs
from twinlink.signed_payload import Rule as SignatureRule

MS = 1_000_000

# Broken by senders that do not prove to be a trusted twin, see `Authentication`.
AuthenticationRule = Literal["identity", SignatureRule]
# The rules of `check`; then those of `DecisionCheck`, which needs more than the decision for them.
Rule = Literal[
    "schema", "range", "protected", "age", "validity",
    "peer", AuthenticationRule, "e3", "order", "holder", "sync",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of decisions.

    Attributes:
        n_prbs: PRBs of the carrier.
        protected: PRBs that are never blocked.
        max_age_ms: between the twin's decision (its clock) and now (ours), in either direction; not for an empty list,
            which clears the block.
        max_validity_ms: longest validity without renewal.
        slots_per_frame: of the carrier, as many as a sensing policy has masks.
    """

    n_prbs: int
    protected: frozenset[int] = frozenset()
    max_age_ms: int = 500
    max_validity_ms: int = 10_000
    slots_per_frame: int = 20


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a decision is rejected; ``id`` is None if the decision has no usable one.

    ``reason`` is text that begins with the rule and a colon.
    """

    id: str | None
    reason: str

    @property
    def rule(self) -> Rule:
        """The broken rule."""
        return cast(Rule, self.reason.partition(":")[0])


def check(payload: bytes | memoryview, limits: Limits, now_ns: int) -> Decision | Rejection:
    """The block or policy that a message of flow ``control`` requests, or why it is rejected; ``now_ns``: Unix time."""
    try:
        decision = decode_decision(payload)
    except MalformedPayload as error:
        return Rejection(identifier(payload), f"schema: {error}")
    if reason := _objection(decision, limits, now_ns):
        return Rejection(decision.id, reason)
    return decision


def _objection(decision: Decision, limits: Limits, now_ns: int) -> str | None:
    if isinstance(decision, SensingPolicy):
        if len(decision.mask_per_slot) not in (0, limits.slots_per_frame):
            return (
                f"range: {len(decision.mask_per_slot)} masks; a frame of the carrier has {limits.slots_per_frame} slots"
            )
    elif decision.prbs and decision.prbs[-1] >= limits.n_prbs:
        outside = format_prbs(prb for prb in decision.prbs if prb >= limits.n_prbs)
        return f"range: PRBs {outside} are outside the carrier's 0-{limits.n_prbs - 1}"
    elif protected := limits.protected.intersection(decision.prbs):
        return f"protected: PRBs {format_prbs(protected)} must stay usable"
    age_ms = (now_ns - decision.issued_ns) / MS if decision.content else 0
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
    if decision.validity_ms > limits.max_validity_ms:
        return f"validity: {decision.validity_ms} ms asked, at most {limits.max_validity_ms} ms; renew it instead"
    return None


def identifier(payload: bytes | memoryview) -> str | None:
    """The id of an invalid decision, for the answer to the twin."""
    if len(payload) > MAX_OCTETS:
        return None
    try:
        value = json.loads(bytes(payload))["id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return value if isinstance(value, str) and 1 <= len(value) <= MAX_ID_LENGTH else None
