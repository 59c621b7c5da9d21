"""Peers that a client hears through a Zenoh router, and that do not come up because of their keys or its own."""

import time
from typing import TYPE_CHECKING

from . import identity_advice
from .base import Endpoint
from .refusals import Refusal, Refusals

if TYPE_CHECKING:
    from ..identity.watched import WatchedIdentity
    from ..protocol.authentication import AuthenticatedPeer

UNMET_S = 1.0  # a peer without answer for so long is reported: hellos come several times a second, and none is lost
HEARD_S = 2.0  # a node that was last heard longer ago is gone
MOST = 64  # names; a router may make up any number


class ZenohRouterPeers:
    """The peers of one client of the router at an endpoint; for the thread that receives."""

    def __init__(self, endpoint: Endpoint, watched: "WatchedIdentity", refusals: Refusals) -> None:
        self._address, self._watched, self._refusals = f"{endpoint.host}:{endpoint.port}", watched, refusals
        self._where = f"the router at {endpoint.host} port {endpoint.port}"
        self._unknown: dict[str, _Heard] = {}  # nodes that are not trusted
        self._unconfirmed: dict[str, _Heard] = {}  # trusted peers that confirm no hello of this side
        self._met: set[str] = set()  # peers, at most as many as are trusted

    def on_unknown(self, name: str) -> None:
        """A frame came below the name of a node that is not trusted."""
        if _note(self._unknown, name):
            self._refusals.add(Refusal(name, self._address, self._watched.why_not(name)))

    def on_hello(self, peer: "AuthenticatedPeer | None", hears_us: bool) -> None:
        """A hello of a trusted peer came that is not up; ``hears_us``: whether it confirms one of this side."""
        if peer is None:
            return
        self._met = (self._met & self._watched.names) | {peer.name}
        if hears_us:
            self._unconfirmed.pop(peer.name, None)
        else:
            _note(self._unconfirmed, peer.name)

    def problem(self) -> str | None:
        """Whether this side or a peer refuses the other, and what repairs it, for a person.

        A node that is not trusted need not be a peer of this side: once a trusted peer was met, it is no problem.
        """
        if (name := _lasting(self._unconfirmed)) is not None:
            return identity_advice.refused_there(name, self._watched.identity)
        if self._met.isdisjoint(self._watched.names) and (name := _lasting(self._unknown)) is not None:
            return identity_advice.refused_behind(name, self._where, self._watched.identity.folder)
        return None


class _Heard:
    def __init__(self) -> None:
        self.first_s = self.last_s = time.monotonic()


def _note(heard: dict[str, _Heard], name: str) -> bool:
    """Note that a name is heard now; returns whether it is new."""
    now = time.monotonic()
    if (before := heard.get(name)) is not None and now - before.last_s < HEARD_S:
        before.last_s = now
        return False
    if len(heard) >= MOST:
        del heard[next(iter(heard))]
    heard[name] = _Heard()
    return True


def _lasting(heard: dict[str, _Heard]) -> str | None:
    """A name that was heard for a while, and still is."""
    now = time.monotonic()
    for name, one in heard.items():
        if one.last_s - one.first_s > UNMET_S and now - one.last_s < HEARD_S:
            return name
    return None
