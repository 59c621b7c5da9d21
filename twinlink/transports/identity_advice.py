"""For a person: which of two sides refuses the other's identity, and the command that repairs it.

``where`` is the listener, as in "the listener at 10.0.0.5 port 7447".
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..identity.identity import Identity
    from ..identity.watched import WatchedIdentity


def refused_there(where: str, own: "Identity") -> str:
    """The listener does not trust this side's key."""
    return (
        f"{where} refuses the key of this side, {own.name} ({own.fingerprint}, expires {own.expiry:%Y-%m-%d}): run "
        f"there `twinlink key trust LINE --as {own.name} --role {own.role} --identity DIR` with the line that "
        f"`twinlink key show --identity {own.folder}` prints here; if the key was revoked or has expired, run "
        f"`twinlink key rotate --identity {own.folder}` here before"
    )


def refused_here(where: str, watched: "WatchedIdentity") -> str:
    """This side does not trust the listener's key."""
    folder, names = watched.identity.folder, ", ".join(sorted(watched.names))
    return (
        f"this side refuses {where}, which has another key than those trusted here (of {names}): if it is a peer, run "
        f"`twinlink key trust LINE --as NAME --identity {folder}` here with the line that `twinlink key show` prints "
        "there"
    )


def none_there(where: str) -> str:
    """The listener has no identity."""
    return (
        f"this side refuses {where}, which has no identity: give it one there, with `twinlink key new` and --identity"
    )


def none_here(where: str) -> str:
    """This side has no identity."""
    return (
        f"{where} takes only nodes with an identity that it trusts, and this side has none: make one with `twinlink "
        "key new NAME --role ROLE --identity DIR`, and give it with --identity"
    )


def none_trusted(folder: Path) -> str:
    """This side trusts no peer."""
    return f"no key of a peer is trusted in {folder}: run `twinlink key trust LINE --as NAME --identity {folder}`"
