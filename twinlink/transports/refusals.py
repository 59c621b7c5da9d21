"""Connections that a transport refused for the identity that they proved, or did not prove."""

import threading
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

from ..protocol.frames import is_node_name

INTERVAL_S = 1.0  # between two reports of the same source
MAX_SOURCES = 1024
MAX_PENDING = 256


class Refusal(NamedTuple):
    """One refused connection.

    Attributes:
        identity: the name of the peer where its key is known, else the fingerprint of its key, or empty.
        address: where it came from, a host with or without port.
        reason: ``unknown``, ``revoked``, ``expired``; ``role``: it is trusted, and its role is not admitted at this
            endpoint; ``key``: it expects another key of this side; ``mechanism``: one side has an identity, and the
            other has not.
    """

    identity: str
    address: str
    reason: str

    def advice(self, folder: Path | None) -> str:
        """What was refused, and what repairs it, for a person; ``folder``: of this side's identity."""
        here, known = folder or "DIR", f"{self.identity or 'a peer'} from {self.address}"
        if self.reason == "unknown":
            return (
                f"refused {known}: its key is not trusted; if it is a peer, run `twinlink key trust LINE --as NAME "
                f"--identity {here}` with the line that `twinlink key show` prints there; leave LINE out if the "
                "authority of ca.crt here has issued its certificate"
            )
        if self.reason in {"revoked", "expired"}:
            what = "was revoked here" if self.reason == "revoked" else "has expired"
            return f"refused {known}: its key {what}; have it run `twinlink key rotate`, and trust its new line"
        if self.reason == "role":
            return (
                f"refused {known}: this endpoint is for observers; have it connect where the others do, or trust it "
                f"with `twinlink key trust LINE --as NAME --role observer --identity {here}`"
            )
        if self.reason == "key":
            return (
                f"{known} expects another key of this side: run there `twinlink key trust LINE --as NAME --identity "
                f"DIR` with the line that `twinlink key show --identity {here}` prints here"
            )
        return f"refused {known}, as only one of the two sides has an identity: give both one with --identity"


class Refusals:
    """The refusals of one transport; any thread may use it.

    Attributes:
        count: how many there were.
        last: the last one.
    """

    def __init__(self) -> None:
        self.count = 0
        self.last: Refusal | None = None
        self._reported: dict[str, float] = {}  # by host
        self._pending: deque[Refusal] = deque(maxlen=MAX_PENDING)
        self._lock = threading.Lock()

    def add(self, refusal: Refusal) -> None:
        """Count a refusal, and keep it for `take` if its source has had none for a second."""
        now, host = time.monotonic(), _host(refusal.address)
        if refusal.identity and not is_node_name(refusal.identity):  # of a certificate that is not trusted
            refusal = refusal._replace(identity=ascii(refusal.identity))
        with self._lock:
            self.count += 1
            self.last = refusal
            if now - self._reported.get(host, -INTERVAL_S) < INTERVAL_S:
                return
            self._reported.pop(host, None)
            self._reported[host] = now
            if len(self._reported) > MAX_SOURCES:
                del self._reported[next(iter(self._reported))]
            self._pending.append(refusal)

    def take(self) -> list[Refusal]:
        """Those that are to be reported."""
        if not self._pending:
            return []
        with self._lock:
            taken = list(self._pending)
            self._pending.clear()
        return taken


def _host(address: str) -> str:
    """The host of an address with or without port; one of IPv6 has brackets where it has a port."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address if address.count(":") > 1 else address.partition(":")[0]
