"""Signatures for the decisions of this twin, and which results come from a trusted exporter."""

from typing import TYPE_CHECKING

import twinlink
from twinlink.signed_payload import Refusal, Signer, Verifier, body_of

if TYPE_CHECKING:
    from twinlink.identity.watched import WatchedIdentity


class Authentication:
    """With an identity, decisions are signed, and only signed results of trusted exporters count.

    Args:
        watched: identity of this twin; None: it has none.
        epoch: of its link.
    """

    def __init__(self, watched: "WatchedIdentity | None" = None, epoch: int = 0) -> None:
        self._signer = Signer(watched, epoch) if watched else None
        self._verifier = Verifier(watched, epoch) if watched else None

    @property
    def signs(self) -> bool:
        """Whether decisions are signed."""
        return self._signer is not None

    def sign(self, decision: bytes, node: str, epoch: int | None) -> bytes:
        """The payload of a decision for the exporter with this name and session, signed if there is an identity."""
        return self._signer.sign("control", decision, node, epoch or 0) if self._signer else decision

    def check(self, message: twinlink.Message) -> bytes | memoryview | Refusal:
        """The result in a message of flow ``control-result``, or why it does not count."""
        if self._verifier is None:
            return body_of(message.payload)  # not verified; it says why an exporter with an identity refuses this twin
        verdict = self._verifier.verify(message.flow, message.payload, message.node, message.epoch)
        return verdict if isinstance(verdict, Refusal) else verdict.body
