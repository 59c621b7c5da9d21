"""Peers that a client of a Zenoh router hears, and does not meet for their keys or its own."""

import time
from typing import TYPE_CHECKING

from . import identity_advice
from .base import Endpoint
from .refusals import Refusal, Refusals

if TYPE_CHECKING:
    from ..identity.watched import WatchedIdentity
    from ..protocol.authentication import AuthenticatedPeer

UNMET_S = 1.0  # hellos come several times a second, and a router loses none
HEARD_S = 2.0  # what was last heard longer ago is gone


class ZenohRouterPeers:
    """Of one client; for the thread that receives.

    Args:
        endpoint: of the router.
        watched: identity of this side.
        refusals: what is to be reported.
    """

    def __init__(self, endpoint: Endpoint, watched: "WatchedIdentity", refusals: Refusals) -> None:
        self._address, self._watched, self._refusals = f"{endpoint.host}:{endpoint.port}", watched, refusals
        self._where = f"the router at {endpoint.host} port {endpoint.port}"
        self._unknown: _Heard | None = None
        self._unconfirmed: _Heard | None = None

    def on_unknown(self, name: str) -> None:
        """A frame came below the name of a node that is not trusted."""
        self._unknown = _heard(self._unknown, name)
        self._refusals.add(Refusal(name, self._address, self._watched.why_not(name)))

    def on_hello(self, peer: "AuthenticatedPeer | None", hears_us: bool) -> None:
        """A hello of a trusted peer came that is not up; ``hears_us``: whether it confirms one of this side."""
        if peer is not None:
            self._unknown = None
            self._unconfirmed = None if hears_us else _heard(self._unconfirmed, peer.name)

    def problem(self) -> str | None:
        """Which of this side and a peer refuses the other, and what repairs it, for a person."""
        if (unconfirmed := self._unconfirmed) is not None and unconfirmed.lasts():
            return identity_advice.refused_there(unconfirmed.name, self._watched.identity)
        if (unknown := self._unknown) is not None and unknown.lasts():
            return identity_advice.refused_behind(unknown.name, self._where, self._watched.identity.folder)
        return None


class _Heard:
    def __init__(self, name: str) -> None:
        self.name = name
        self.first_s = self.last_s = time.monotonic()

    def lasts(self) -> bool:
        return self.last_s - self.first_s > UNMET_S and time.monotonic() - self.last_s < HEARD_S


def _heard(before: _Heard | None, name: str) -> _Heard:
    """As last heard now."""
    now = time.monotonic()
    if before is None or before.name != name or now - before.last_s > HEARD_S:
        return _Heard(name)
    before.last_s = now
    return before
