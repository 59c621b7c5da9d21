"""Why a connector over TLS meets no listener or router, as far as identities are the cause: drivers report little."""

import time
from typing import TYPE_CHECKING

from ..process.guarded_thread import GuardedThread
from . import identity_advice
from .base import Endpoint
from .tls_probe import Finding, Outcome, probe

if TYPE_CHECKING:
    from ..identity.public_line import Role
    from ..identity.trust_file import TrustedPeer
    from ..identity.watched import WatchedIdentity

FIRST_S = 0.3  # without a connection; a handshake takes less, or the path is long
AGAIN_S = 0.2  # after an answer that tells nothing, as when the end of a connection overtook its reason; then doubled
AT_MOST_S = 1.0
BUSY_S = 2.0
# A connector that stays refused tries less often: each failed handshake delays those of others at a Zenoh listener.
SOON_S, LATER_AT_MOST_S = 10.0, 5.0


class TlsHandshakes:
    """The handshakes of one connector; for the thread that receives.

    Args:
        endpoint: of the listener or router.
        watched: identity of this side; None: it has none.
        router: whether that is a router.

    Attributes:
        problem: for a person; None: none is known.
        certificate: of a listener that both sides trust, though the driver has not connected; DER.
        unreachable: whether the last handshake got no answer.
        is_busy: whether the listener accepted the TCP connection, and did not answer.
    """

    def __init__(self, endpoint: Endpoint, watched: "WatchedIdentity | None", router: bool = False) -> None:
        self.problem: str | None = None
        self.certificate: bytes | None = None
        self.unreachable = self.is_busy = False
        self._endpoint, self._watched = endpoint, watched
        self._router = router
        self._where = f"the {'router' if router else 'listener'} at {endpoint.host} port {endpoint.port}"
        self._next_s: float | None = None
        self._since_s = 0.0  # without a connection
        self._pause_s = AGAIN_S
        self._has_been = False  # connected
        self._version = watched.version if watched is not None else 0
        self._asking: GuardedThread | None = None
        self._finding: Finding | None = None

    def check(self, connected: bool) -> None:
        """Do a handshake now and then while there is no connection; ``connected``: whether the driver has one."""
        self.certificate = None
        if connected:
            self.problem, self._next_s, self._has_been = None, None, True
            self.unreachable = self.is_busy = False
            return
        if self._watched is None and self._has_been:
            return  # it takes nodes without an identity: nothing is to be found out
        if self._watched is not None and not (self._trusted(self._watched) or self._issued(self._watched)):
            self.problem = identity_advice.none_trusted(self._watched.identity.folder, self._router)
            return
        now = time.monotonic()
        if self._watched is not None and self._watched.version != self._version:
            self._version = self._watched.version
            self._next_s, self._pause_s = now, AGAIN_S  # what was found before may be repaired
        if self._next_s is None:
            self._since_s, self._next_s, self._pause_s = now, now + FIRST_S, AGAIN_S
        elif self._asking is not None and not self._asking.is_alive():
            self._asking = None
            self._take(self._finding)
            self._next_s = now + (BUSY_S if self.is_busy else self._pause_s)
            soon = self.problem is None or now - self._since_s < SOON_S
            self._pause_s = min(2 * self._pause_s, AT_MOST_S if soon else LATER_AT_MOST_S)
        elif self._asking is None and now >= self._next_s:
            self._asking = GuardedThread(self._ask, "twinlink-tls-probe")
            try:
                self._asking.start()
            except RuntimeError:  # no more threads, or the interpreter ends
                self._asking, self._next_s = None, now + AT_MOST_S

    def _trusted(self, watched: "WatchedIdentity") -> "tuple[TrustedPeer, ...]":
        return watched.routers if self._router else (*watched.valid, *watched.brokers)

    def _issued(self, watched: "WatchedIdentity") -> "dict[str, Role]":
        """Those of which certificates of the authority count here."""
        return {name: role for name, role in watched.issued.items() if (role == "router") == self._router}

    def _ask(self) -> None:
        trusted, pair, roots, names, brokers = [], None, b"", frozenset[str](), frozenset[str]()
        if self._watched is not None:
            own = self._watched.identity
            trusted = [key.line.certificate for key in self._trusted(self._watched)]
            pair = own.certificate_file, own.private_key_file
            if own.authority:
                roots = own.authority + b"".join(key.certificate_pem for key in self._trusted(self._watched))
                issued = self._issued(self._watched)
                names, brokers = frozenset(issued), frozenset(name for name, role in issued.items() if role == "broker")
        endpoint = self._endpoint
        self._finding = probe(endpoint.host, endpoint.port, trusted, pair, roots=roots, names=names, hosts=brokers)

    def _take(self, finding: Finding | None) -> None:
        outcome = finding.outcome if finding is not None else Outcome.UNKNOWN
        self.unreachable, self.is_busy = outcome is Outcome.UNKNOWN, outcome is Outcome.SILENT
        if self._watched is None:
            tls = outcome in {Outcome.REFUSED_THERE, Outcome.REFUSED_HERE}
            self.problem = identity_advice.none_here(self._where) if tls else None
        elif outcome is Outcome.REFUSED_THERE:
            self.problem = identity_advice.refused_there(self._where, self._watched.identity, self._router)
        elif outcome is Outcome.REFUSED_HERE:
            self.problem = identity_advice.refused_here(self._where, self._watched, self._router)
        elif outcome is Outcome.NO_TLS:
            self.problem = identity_advice.none_there(self._where, self._router)
        else:
            self.problem = None
            self.certificate = finding.certificate if finding is not None else None
