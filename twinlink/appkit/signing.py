"""The identity with which a program signs decisions or their results."""

import argparse
from typing import TYPE_CHECKING

import twinlink
from twinlink.errors import ConfigurationError

from .options import Container

if TYPE_CHECKING:
    from twinlink.identity.watched import WatchedIdentity


def add_option(parser: Container, what: str) -> None:
    """Declare ``--sign``; ``what`` is signed."""
    parser.add_argument(
        "--sign",
        metavar="DIR",
        help=f"identity with which {what} are signed over a link without one, as through a router or a broker; such a "
        "link is neither encrypted nor authenticated",
    )


def signs(given: argparse.Namespace) -> bool:
    """Whether the program signs.  Raises ConfigurationError where both options are given."""
    if given.sign is not None and given.identity:
        raise ConfigurationError("--sign is for a link without an identity: leave out one of --sign and --identity")
    return bool(given.sign or given.identity)


def signing_identity(given: argparse.Namespace, link: twinlink.Link) -> "WatchedIdentity | None":
    """The identity of ``--sign``, or that of the link; None without either.

    Raises ConfigurationError, TransportMissing.
    """
    found = _identity(given, link)
    if found is not None:
        _ = found.identity.signing_key  # raises if it has none
    return found


def _identity(given: argparse.Namespace, link: twinlink.Link) -> "WatchedIdentity | None":
    if not signs(given) or given.sign is None:
        return link.identity
    from twinlink.identity import Identity
    from twinlink.identity.watched import WatchedIdentity

    watched = WatchedIdentity(Identity.load(given.sign))
    if watched.name != link.node:
        raise ConfigurationError(f"{given.sign} is the identity of {watched.name}: add --node {watched.name}")
    return watched
