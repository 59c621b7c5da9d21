"""For a person: which of two sides refuses the other's identity, and the command that repairs it.

``where`` is the listener, as in "the listener at 10.0.0.5 port 7447", or a router or broker.
"""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from ..protocol.frames import is_node_name

if TYPE_CHECKING:
    from ..identity.identity import Identity
    from ..identity.watched import WatchedIdentity


def refused_there(where: str, own: "Identity", router: bool = False, *, curve: bool = False) -> str:
    """The other side does not trust this side's key; with ``curve``, its log names the CURVE key."""
    if own.authority:
        return (
            f"{where} refuses the certificate of this side, {own.name} ({own.fingerprint}, expires "
            f"{own.expiry:%Y-%m-%d}): ca.crt there must be of the authority that has issued it; then run there "
            f"`twinlink key trust --as {own.name} --role ROLE --identity DIR`"
        )
    logged = f"; in the log there {own.line.curve_fingerprint}, that of the CURVE key" if curve else ""
    return (
        f"{where} refuses the key of this side, {own.name} ({own.fingerprint}, expires {own.expiry:%Y-%m-%d}{logged}): "
        f"run there `twinlink key trust LINE --as {own.name} --role {own.role} --identity DIR` with the line that "
        f"`twinlink key show --identity {own.folder}` prints here; if the key was revoked or has expired, run "
        f"`twinlink key rotate --identity {own.folder}` here before"
        f"{'' if own.role == 'observer' or router else '; if a mirror is there, it takes observers alone'}"
        f"{'. Afterwards, run `twinlink key router` there, and restart zenohd' if router else ''}"
    )


def refused_here(where: str, watched: "WatchedIdentity", router: bool = False) -> str:
    """This side does not trust the other side's key."""
    folder, trusted = watched.identity.folder, watched.routers if router else (*watched.valid, *watched.brokers)
    names = ", ".join(sorted({key.name for key in trusted} | set(watched.issued)))
    if watched.identity.authority:
        return (
            f"this side refuses {where}, which has another certificate than those trusted here (of {names}): if it is "
            f"a peer, its certificate must be of the authority in {folder}/ca.crt; then run `twinlink key trust --as "
            f"NAME --role ROLE --identity {folder}` here"
        )
    return (
        f"this side refuses {where}, which has another key than those trusted here (of {names}): if it is "
        f"{'yours' if router else 'a peer'}, run `twinlink key trust LINE --as NAME --identity {folder}` here with the "
        "line that `twinlink key show` prints there"
    )


def refused_behind(name: str, where: str, folder: Path) -> str:
    """This side does not trust the key of a node that it hears through a router or broker (``where``)."""
    if not is_node_name(name):
        name = ascii(name)
    return (
        f"this side refuses {name}, which it hears through {where}: if it is a peer, run `twinlink key trust LINE --as "
        f"{shlex.quote(name)} --identity {folder}` here with the line that `twinlink key show` prints there; if its "
        "key was revoked or has expired, run `twinlink key rotate` there before"
    )


def none_there(where: str, router: bool = False) -> str:
    """The other side has no identity."""
    means = "`twinlink key router`" if router else "--identity"
    return f"this side refuses {where}, which has no identity: give it one there, with `twinlink key new` and {means}"


def none_here(where: str) -> str:
    """This side has no identity."""
    return (
        f"{where} takes only nodes with an identity that it trusts, and this side has none: make one with `twinlink "
        "key new NAME --role ROLE --identity DIR`, and give it with --identity"
    )


def none_trusted(folder: Path, router: bool = False) -> str:
    """This side trusts no peer, or no router."""
    return (
        f"no key of a {'router' if router else 'peer'} is trusted in {folder}: run `twinlink key trust LINE --as NAME "
        f"--identity {folder}`{' with the line of the router' if router else ''}"
    )
