"""Zenoh between nodes with certificates of an authority, as cert-manager issues them.

The authority is the only trust anchor then, and it issues each certificate in the node's own name.  So a node needs no
password besides its certificate.  Pinned certificates do not count.
"""

from ..identity.identity import Identity
from ..identity.public_line import INTERMEDIARIES
from .zenoh_identity import Entry, ZenohIdentity


class ZenohAuthority(ZenohIdentity):
    """A `ZenohIdentity` whose folder has ``ca.crt``."""

    _used_names: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        issued = self.watched.issued.items()
        if self._side == "client":
            return frozenset(name for name, role in issued if role == "router")
        return frozenset(name for name, role in issued if role not in INTERMEDIARIES)

    @property
    def is_stale(self) -> bool:
        own, used = self.watched.identity, self._used
        return used is None or _keys(used) != _keys(own) or self._used_names != self.names

    @property
    def why_alone(self) -> str | None:  # type: ignore[override]
        """Zenoh accepts a certificate of the authority in any name, and what is not allowed it denies in silence."""
        return (
            f"check that the other side runs, and trusts this one: `twinlink key trust --as {self.watched.name} --role "
            f"ROLE --identity DIR` there; it trusts {', '.join(sorted(self.names)) or 'no peer'} here"
        )

    def pin(self, certificate: bytes | None = None) -> None:
        """Does nothing: the session accepts every trusted name."""

    def settings(self) -> Entry:
        own, names = self.watched.identity, self.names
        self._used, self._used_names = own, names
        # Zenoh opens no listener of TLS with client certificates, unless it has a trust anchor.
        roots = own.authority or own.certificate_pem
        return self._tls(own, roots) | {"access_control": self._access(own, sorted(names), None)}


def _keys(identity: Identity) -> tuple[bytes, bytes]:
    return identity.certificate, identity.authority
