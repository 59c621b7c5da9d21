"""Which decisions come from a trusted twin, and signatures for the results that answer them."""

from typing import TYPE_CHECKING

import twinlink
from twinlink.control import unread_id
from twinlink.signed_payload import STALE_RULES, Refusal, Signer, Verifier, body_of

from .decision_guard import Rejection, identifier

if TYPE_CHECKING:
    from twinlink.identity.watched import WatchedIdentity


class Authentication:
    """With an identity, only signed decisions of trusted twins count; without one, all do or none.

    Args:
        watched: identity of this exporter; None: it has none.
        epoch: of its link.
        insecure_control: without an identity, whether any twin may decide.
    """

    def __init__(self, watched: "WatchedIdentity | None", epoch: int, insecure_control: bool = False) -> None:
        self._verifier = Verifier(watched, epoch) if watched else None
        self._signer = Signer(watched, epoch) if watched else None
        self._insecure_control = insecure_control

    def check(self, message: twinlink.Message) -> bytes | memoryview | Rejection:
        """The decision in a message, or in a desired value, or why its sender does not prove that it may decide.

        What no trusted twin has signed is not read: its result has `unread_id`.
        """
        payload, unread = message.payload, unread_id(message.epoch, message.sequence)
        if self._verifier is None:
            if self._insecure_control:
                return body_of(payload)
            text = "this exporter has no identity, so it takes no decision: see --identity, or --insecure-control"
            return Rejection(unread, f"identity: {text}")
        verdict = self._verifier.verify("control", payload, message.node, message.epoch)
        if isinstance(verdict, Refusal):
            id = identifier(body_of(payload)) if verdict.rule in STALE_RULES else unread
            return Rejection(id, f"{verdict.rule}: {verdict.text}")
        return verdict.body

    def sign(self, flow: str, result: bytes) -> bytes:
        """The payload of a result, signed if there is an identity."""
        return self._signer.sign(flow, result) if self._signer else result
