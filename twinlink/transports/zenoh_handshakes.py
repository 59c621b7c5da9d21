"""Why a Zenoh connector meets no listener, as far as it is due to identities: Zenoh reports nothing of it."""

import threading
import time
from typing import TYPE_CHECKING

from . import identity_advice
from .base import Endpoint
from .tls_probe import Finding, Outcome, probe

if TYPE_CHECKING:
    from .zenoh_identity import ZenohIdentity

FIRST_S = 0.3  # without a connection; a handshake takes less, or the path is long
AGAIN_S = 1.0


class ZenohHandshakes:
    """Of one connector; for the thread that receives.

    Args:
        endpoint: of the listener.
        identity: of this side, None: without one.

    Attributes:
        problem: for a person; None: none is known.
        certificate: of a listener that both sides trust, though Zenoh has not connected; DER.
    """

    def __init__(self, endpoint: Endpoint, identity: "ZenohIdentity | None") -> None:
        self.problem: str | None = None
        self.certificate: bytes | None = None
        self._endpoint, self._identity = endpoint, identity
        self._where = f"the listener at {endpoint.host} port {endpoint.port}"
        self._next_s: float | None = None
        self._version = identity.watched.version if identity is not None else 0
        self._asking: threading.Thread | None = None
        self._finding: Finding | None = None

    def check(self, connected: bool) -> None:
        """Look after it; ``connected``: whether Zenoh is."""
        self.certificate = None
        if connected:
            self.problem = self._next_s = None
            return
        if self._identity is not None and not self._identity.watched.valid:
            self.problem = identity_advice.none_trusted(self._identity.watched.identity.folder)
            return
        now = time.monotonic()
        if self._identity is not None and self._identity.watched.version != self._version:
            self._version, self._next_s = self._identity.watched.version, now  # what was found before may be repaired
        if self._next_s is None:
            self._next_s = now + FIRST_S
        elif self._asking is not None and not self._asking.is_alive():
            self._asking, self._next_s = None, now + AGAIN_S
            self._take(self._finding)
        elif self._asking is None and now >= self._next_s:
            self._asking = threading.Thread(target=self._ask, name="twinlink-zenoh-probe", daemon=True)
            try:
                self._asking.start()
            except RuntimeError:  # no more threads, or the interpreter ends
                self._asking, self._next_s = None, now + AGAIN_S

    def _ask(self) -> None:
        trusted, pair = [], None
        if self._identity is not None:
            own = self._identity.watched.identity
            trusted = [peer.line.certificate for peer in self._identity.watched.valid]
            pair = own.certificate_file, own.private_key_file
        self._finding = probe(self._endpoint.host, self._endpoint.port, trusted, pair)

    def _take(self, finding: Finding | None) -> None:
        outcome = finding.outcome if finding is not None else Outcome.UNKNOWN
        if self._identity is None:
            tls = outcome in {Outcome.REFUSED_THERE, Outcome.REFUSED_HERE}
            self.problem = identity_advice.none_here(self._where) if tls else None
        elif outcome is Outcome.REFUSED_THERE:
            self.problem = identity_advice.refused_there(self._where, self._identity.watched.identity)
        elif outcome is Outcome.REFUSED_HERE:
            self.problem = identity_advice.refused_here(self._where, self._identity.watched)
        elif outcome is Outcome.NO_TLS:
            self.problem = identity_advice.none_there(self._where)
        else:
            self.problem = None
            self.certificate = finding.certificate if finding is not None else None
