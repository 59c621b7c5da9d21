"""An identity whose folder is watched: what is trusted, revoked or rotated counts without a restart."""

import dataclasses
import logging
import threading
import time
from pathlib import Path

from ..errors import ConfigurationError
from ..protocol.authentication import AuthenticatedPeer, epoch_prefix
from .identity import CERTIFICATE, PRIVATE_KEY, REVOKED, SECRET, TRUSTED, Identity
from .trust_file import TrustedPeer

LOOK_S = 0.2
_FILES = (SECRET, CERTIFICATE, PRIVATE_KEY, TRUSTED, REVOKED)

logger = logging.getLogger("twinlink")


class WatchedIdentity:
    """Any thread may use it.

    Attributes:
        identity: as it was last read.  When the folder cannot be read any more, it trusts no peer.
        valid: the keys of peers that are trusted, neither revoked nor expired; the newest of a peer is last.
        routers: such keys of Zenoh routers, which are no peers.
        by_curve: the peer of each of those keys, by its public key of CURVE as text.
        by_name: the peers with a valid key.
        version: grows whenever something of this changes.
    """

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.version = 0
        self.valid: tuple[TrustedPeer, ...] = ()
        self.routers: tuple[TrustedPeer, ...] = ()
        self.by_curve: dict[str, AuthenticatedPeer] = {}
        self.by_name: dict[str, AuthenticatedPeer] = {}
        self._seen: tuple[tuple[int, int, int] | None, ...] = ()  # it may have changed since it was read
        self._next_look_s = 0.0
        self._lock = threading.Lock()
        self.refresh()

    @property
    def name(self) -> str:
        """Of this node."""
        return self.identity.name

    @property
    def names(self) -> frozenset[str]:
        """Of the peers with a valid key."""
        return frozenset(peer.name for peer in self.valid)

    def refresh(self, *, at_once: bool = False) -> None:
        """Look at the folder and the time, if that was not done just now, or has to be done ``at_once``."""
        now_s = time.monotonic()
        if (now_s < self._next_look_s and not at_once) or not self._lock.acquire(False):
            return
        try:
            self._next_look_s = now_s + LOOK_S
            self._look()
        finally:
            self._lock.release()

    def _look(self) -> None:
        before, changed = self.identity, False
        if (seen := _signature(before.folder)) != self._seen:
            self._seen, changed = seen, True
            try:
                self.identity = Identity.load(before.folder)
                if self.identity.name != before.name:
                    raise ConfigurationError(f"{before.folder} has become the identity of {self.identity.name}")
            except ConfigurationError as error:
                logger.error("%s: no peer is trusted until this is repaired", error)
                self.identity = dataclasses.replace(before, trusted=())
        keys = self.identity.valid()
        valid = tuple(key for key in keys if key.role != "router")
        routers = tuple(key for key in keys if key.role == "router")
        if changed or (valid, routers) != (self.valid, self.routers) or not self.version:
            self.by_curve = {
                peer.curve_public.decode(): AuthenticatedPeer(peer.name, peer.role, epoch_prefix(peer.name))
                for peer in valid
            }
            self.by_name = {peer.name: peer for peer in self.by_curve.values()}
            self.valid, self.routers = valid, routers
            self.version += 1


def _signature(folder: Path) -> tuple[tuple[int, int, int] | None, ...]:
    """Changes with each of the files."""
    found: list[tuple[int, int, int] | None] = []
    for name in _FILES:
        try:
            status = (folder / name).stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_ctime_ns, status.st_size))  # ctime: of the mode, too
    return tuple(found)
