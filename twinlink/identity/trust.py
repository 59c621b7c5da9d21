"""Changes to what an identity trusts, and to its own keys.  Programs that use the identity notice them at once."""

import contextlib
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ..errors import ConfigurationError
from ..protocol.authentication import epoch_prefix
from . import certificates, trust_file
from .folder import Folder
from .identity import AUTHORITY, CERTIFICATE, NEXT, PRIVATE_KEY, REVOKED, SECRET, TRUSTED, Identity, write_keys
from .public_line import PublicLine, Role, check_name
from .trust_file import TrustedPeer


def trust(folder: Path, line: PublicLine, role: Role, *, beside: bool = False) -> bool:
    """Trust a key of a peer; returns whether that changes anything.

    ``beside``: also where another key of this peer is trusted, as while it rotates its keys.

    Raises ConfigurationError: it is this side's own key, revoked, expired, or not the one that is trusted.
    """
    added = TrustedPeer(line, role)
    if added.expiry <= datetime.now(UTC):
        raise ConfigurationError(
            f"the keys of {line.name} expired on {added.expiry:%Y-%m-%d}: have the peer run `twinlink key rotate`"
        )
    with _changing(folder) as (opened, identity):
        if any(_share_a_key(peer.line, line) for peer in identity.revoked):
            raise ConfigurationError(
                f"this key of {line.name} ({line.fingerprint}) was revoked here and stays so: have the peer run "
                "`twinlink key rotate`, and trust its new line"
            )
        trusted, names = trust_file.read(opened, TRUSTED)
        if added in trusted:
            return False
        own = [identity.line] if identity.secret is not None else []
        for peer in (*own, *(peer.line for peer in trusted)):
            if peer.name != line.name and _share_a_key(peer, line):
                raise ConfigurationError(
                    f"this line of {line.name} has a key of {peer.name}, so that one could pass for the other: take "
                    f"the line that `twinlink key show` prints on the host of {line.name}"
                )
        _check_distinct(identity, {*identity.named, *(peer.name for peer in trusted)}, line.name)
        others = [peer for peer in trusted if peer.name == line.name and peer.fingerprint != line.fingerprint]
        if others and not beside:
            raise ConfigurationError(_changed(folder, line, others))
        trust_file.write(opened, TRUSTED, [*(peer for peer in trusted if peer.line != line), added], names)
    return True


def trust_issued(folder: Path, name: str, role: Role) -> bool:
    """Trust a peer with this name and a certificate of the authority; returns whether that changes anything.

    Raises ConfigurationError: the folder has no ``ca.crt``, or the name is this side's own.
    """
    with _changing(folder) as (opened, identity):
        if not identity.authority:
            raise ConfigurationError(
                f"{folder} has no {AUTHORITY}, the certificate of an authority: give the LINE that `twinlink key show` "
                f"prints on the host of {name}"
            )
        check_name(name)
        _check_distinct(identity, identity.issued(), name)
        if (pinned := next((peer for peer in identity.valid() if peer.name == name), None)) and pinned.role != role:
            raise ConfigurationError(
                f"{name} is trusted in {folder} by its public line, with the role {pinned.role}, which counts for its "
                f"certificates, too: give --role {pinned.role}, or run `twinlink key revoke {name} --identity {folder}`"
                " first"
            )
        trusted, revoked = (trust_file.read(opened, file) for file in (TRUSTED, REVOKED))
        if trusted.names.get(name) == role and name not in revoked.names:
            return False
        trust_file.write(opened, TRUSTED, trusted.keys, trusted.names | {name: role})
        if revoked.names.pop(name, None):
            trust_file.write(opened, REVOKED, *revoked)
    return True


@contextlib.contextmanager
def _changing(folder: Path) -> Iterator[tuple[Folder, Identity]]:
    """The folder of an identity, open and locked for a change, and what it has now.  Raises ConfigurationError."""
    try:
        with Folder.opened(folder, exclusive=True) as opened:
            yield opened, Identity.read(opened)
    except OSError as error:
        raise _unchanged(folder, error) from error


def _unchanged(folder: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"{error.filename or folder} cannot be read or changed: {error.strerror}; an identity is made with "
        f"`twinlink key new NAME --role ROLE --identity {folder}`"
    )


def _check_distinct(identity: Identity, names: Iterable[str], added: str) -> None:
    """Raises ConfigurationError if frames of a peer with the added name could pass for those of another node."""
    if added == identity.name:
        raise ConfigurationError(f"{added} is the name of this side: trust the public line of the peer")
    for name in {identity.name, *names} - {added}:
        if epoch_prefix(name) == epoch_prefix(added):
            raise ConfigurationError(f"sessions of {added} could be taken for those of {name}: rename one")


def _share_a_key(one: PublicLine, other: PublicLine) -> bool:
    return one.curve_public == other.curve_public or one.verify_key == other.verify_key


def _changed(folder: Path, line: PublicLine, others: Sequence[TrustedPeer]) -> str:
    trusted = ", ".join(peer.fingerprint for peer in others)
    revoking = f"twinlink key revoke {line.name} --identity {folder}"
    return (
        f"THE KEY OF {line.name} HAS CHANGED: {trusted} is trusted here, and this line has {line.fingerprint}. It may "
        "be that of another node that takes this name: compare it with what `twinlink key show` prints on the peer's "
        "host. If the peer rotates its keys, repeat the command with --beside, and afterwards run "
        f"`{revoking} --fingerprint {others[-1].fingerprint}`; if it has lost its keys, run `{revoking}` first"
    )


def revoke(folder: Path, name: str, fingerprint: str | None = None) -> list[TrustedPeer]:
    """Revoke the keys of a peer, or the one with this fingerprint; returns them.

    Without a fingerprint, certificates that the authority has issued in this name are refused, too.

    Raises ConfigurationError: no such key is trusted.
    """
    with _changing(folder) as (opened, identity):
        trusted, names = trust_file.read(opened, TRUSTED)
        revoked, refused = trust_file.read(opened, REVOKED)
        found = [peer for peer in trusted if peer.name == name and fingerprint in {None, peer.fingerprint}]
        issued = identity.issued()
        by_name = fingerprint is None and name in issued
        if not found and not by_name:
            known = ", ".join(sorted({*(peer.name for peer in trusted), *names})) or "nothing"
            which = f" with the fingerprint {fingerprint}" if fingerprint else ""
            raise ConfigurationError(f"no key of {name}{which} is trusted in {folder}; trusted: {known}")
        if by_name:
            refused[name] = issued[name]
            names.pop(name, None)
        # First: between the two steps a key is in both files, and revoked.
        trust_file.write(opened, REVOKED, [*revoked, *found], refused)
        trust_file.write(opened, TRUSTED, [peer for peer in trusted if peer not in found], names)
    return found


def prepare_rotation(folder: Path, expiry: datetime | None = None) -> PublicLine:
    """Make the next keys of an identity, unless they are there, and return their public line; nothing uses them yet.

    Raises ConfigurationError.
    """
    with _changing(folder) as (opened, identity):
        if identity.role is None or certificates.issued(identity.certificate):
            raise ConfigurationError(
                f"an authority has issued the certificate in {folder}, and renews it; to change the keys of CURVE and "
                "of signatures, replace the file secret, and trust the new public line on the peers with --beside"
            )
        if not opened.has(NEXT):
            hosts = certificates.hosts(identity.line.certificate)
            made = f".{NEXT}.{secrets.token_hex(8)}"
            try:
                with opened.inner(made, make=True) as following:
                    write_keys(following, identity.name, identity.role, hosts, expiry)
                opened.rename(made, NEXT)
            finally:
                shutil.rmtree(folder / made, ignore_errors=True)
        with opened.inner(NEXT) as following:
            return Identity.read(following).line


def complete_rotation(folder: Path) -> PublicLine:
    """Use the next keys from now on; the keys so far are removed.  Returns the public line.

    After a crash in between, the folder is no identity until this is repeated.

    Raises ConfigurationError: there are none.
    """
    files = PRIVATE_KEY, CERTIFICATE, SECRET
    try:
        with Folder.opened(folder, exclusive=True) as opened:
            if not opened.has(NEXT):
                raise ConfigurationError(
                    f"{folder} has no next keys: `twinlink key rotate` makes them, and prints their line"
                )
            with opened.inner(NEXT) as following:
                left = [name for name in files if following.has(name)]
                if len(left) == len(files):
                    Identity.read(following)  # raises if they cannot be used
                for name in left:
                    following.read(name, private=name != CERTIFICATE)  # raises if it is another user's
                for name in left:
                    following.move(name, opened)
            opened.remove(NEXT)
            return Identity.read(opened).line
    except OSError as error:
        raise _unchanged(folder, error) from error
