"""Identities: the keys of a node and the keys that it trusts, in a folder (docs/security.md)."""

from . import certificates as _certificates  # noqa: F401  (first: its error names the extra)
from . import trust
from .identity import Identity
from .public_line import PublicLine, Role
from .trust_file import TrustedPeer

__all__ = ["Identity", "PublicLine", "Role", "TrustedPeer", "trust"]
