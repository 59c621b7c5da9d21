"""Handshakes that find out whether the listener, or one of the routers, would accept this side."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .base import Endpoint
from .refusals import Refusals
from .tls_handshakes import TlsHandshakes
from .zenoh_router_peers import ZenohRouterPeers

if TYPE_CHECKING:
    from ..identity.watched import WatchedIdentity


class ZenohHandshakes:
    """The handshakes of one connector or client; for the thread that receives.

    Args:
        endpoints: of the listener, or of the routers.
        watched: identity of this side; None: it has none.
        to_routers: whether the endpoints are those of routers.
        refusals: takes what is to be reported.

    Attributes:
        peers: the peers behind the router; None: this is no client with an identity.
    """

    def __init__(
        self, endpoints: Sequence[Endpoint], watched: "WatchedIdentity | None", to_routers: bool, refusals: Refusals
    ) -> None:
        self.peers: ZenohRouterPeers | None = None
        if to_routers and watched is not None:
            self.peers = ZenohRouterPeers(endpoints[0], watched, refusals)
        self._each = [TlsHandshakes(endpoint, watched, to_routers) for endpoint in endpoints]

    def check(self, connected: bool) -> None:
        """Do handshakes while there is no connection; ``connected``: whether Zenoh has one."""
        for one in self._each:
            one.check(connected)

    @property
    def problem(self) -> str | None:
        """Which side refuses the other, for a person."""
        refused = next((one.problem for one in self._each if one.problem is not None), None)
        return refused or (self.peers.problem() if self.peers is not None else None)

    @property
    def certificate(self) -> bytes | None:
        """The certificate (DER) of a listener or router that was just found to accept this side, and is trusted."""
        return next((one.certificate for one in self._each if one.certificate is not None), None)

    @property
    def unreachable(self) -> bool:
        """Whether no endpoint answers."""
        return all(one.unreachable for one in self._each)

    @property
    def is_refused(self) -> bool:
        """Whether an attempt to connect would fail.  After it, the other side accepts no connection for 0.1 s."""
        return all(one.is_busy or one.problem is not None for one in self._each)
