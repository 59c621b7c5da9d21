"""What a Zenoh listener knows of the connections that it refuses.

Zenoh 1.10 tells a program only of connections that are up, and of the name in their certificate.  It tells nothing of a
handshake that fails, nor of what its access control denies.
"""

import contextlib
from typing import TYPE_CHECKING

import zenoh

from .refusals import Refusal, Refusals
from .zenoh_absent import AbsentSession
from .zenoh_connections import peer_address

if TYPE_CHECKING:
    from ..identity.watched import WatchedIdentity


class ZenohRefusals:
    """The refusals of one listener, by its identity; for one thread at a time."""

    def __init__(self, watched: "WatchedIdentity", refusals: Refusals) -> None:
        self._watched, self._refusals = watched, refusals
        self._reported: set[str] = set()  # addresses of connections

    def check(self, session: zenoh.Session) -> None:
        """Report connections with the name of no trusted peer: the access control denies all that comes over them."""
        if isinstance(session, AbsentSession):
            return
        names: dict[str, str] = {}
        with contextlib.suppress(zenoh.ZError):
            for link in session.info.links():
                names[peer_address(link)] = link.auth_identifier or ""
        self._reported &= names.keys()
        for address, name in names.items():
            if name not in self._watched.names and address not in self._reported:
                self._reported.add(address)
                self._refusals.add(Refusal(name, address, self._watched.why_not(name)))
