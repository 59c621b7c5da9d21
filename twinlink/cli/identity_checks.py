"""The checks of `twinlink doctor` on the identity of this node."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import twinlink
from twinlink.errors import AuthenticationError, TwinlinkError
from twinlink.process import listener_probe
from twinlink.transports import Endpoint, tls_probe

from .checks import Row

if TYPE_CHECKING:
    from twinlink.identity import Identity, TrustedPeer

_SOON = timedelta(days=30)
_SOON_ISSUED = timedelta(days=1)  # for certificates of an authority, which may be short-lived
_HANDSHAKE_S = 5.0


def identity(folder: str, connect: str | None) -> Iterator[Row]:
    """The keys in a folder: modes, pairs, names, expiry; and a handshake with the listener at ``connect``."""
    from twinlink.identity import Identity

    try:
        found = Identity.load(folder)
    except TwinlinkError as error:
        yield Row("identity", "fail", "cannot be used", str(error))
        return
    yield _own(found)
    yield from _modes(found.folder)
    if not found.trusted and not found.issued():
        advice = f"twinlink key trust LINE --as NAME --identity {folder}, with the line that `key show` prints there"
        yield Row("peers", "warn", "no key of a peer is trusted", advice)
    for peer in found.trusted:
        yield _peer(peer, folder)
    if connect is not None and (found.valid() or found.issued()):
        yield _handshake(found, folder, connect)


def _own(found: "Identity") -> Row:
    from twinlink.identity import certificates

    role = f", role {found.role}" if found.role else ""
    seen = f"{found.name}{role}, {found.fingerprint}; {_until(found.expiry)}"
    advice = f"twinlink key rotate --identity {found.folder}, before peers refuse this node"
    soon = _SOON
    if certificates.issued(found.certificate):
        soon = _SOON_ISSUED
        advice = f"have the authority renew {found.certificate_file}, before peers refuse this node"
    left = found.expiry - datetime.now(UTC)
    if left < timedelta(0):
        return Row("identity", "fail", seen, advice)
    return Row("identity", "warn", seen, advice) if left < soon else Row("identity", "ok", seen)


def _peer(peer: "TrustedPeer", folder: str) -> Row:
    seen = f"{peer.name}, role {peer.role}, {peer.fingerprint}; {_until(peer.expiry)}"
    if peer.expiry - datetime.now(UTC) >= _SOON:
        return Row("peer key", "ok", seen)
    advice = f"on its host: twinlink key rotate; then trust its new line here with --beside --identity {folder}"
    return Row("peer key", "warn", seen, advice)


def _until(expiry: datetime) -> str:
    return f"{'expired' if expiry < datetime.now(UTC) else 'expires'} {expiry:%Y-%m-%d}"


def _modes(folder: Path) -> Iterator[Row]:
    """`Identity.load` refuses what other users can read or change; here the group is looked at, too."""
    wrong = [path for path in (folder, *sorted(folder.iterdir())) if path.stat().st_mode & 0o077]
    if not wrong:
        yield Row("key files", "ok", f"only {_owner(folder)} can read {folder}")
        return
    seen = f"others than their owner can read or change: {', '.join(map(str, wrong))}"
    yield Row("key files", "warn", seen, f"chmod -R go= {folder}, unless this is the volume of a container")


def _owner(folder: Path) -> str:
    return "this user" if folder.stat().st_uid == os.geteuid() else f"the user {folder.stat().st_uid}"


def _handshake(found: "Identity", folder: str, connect: str) -> Row:
    """Whether the listener and this node take each other, over whichever transport it has."""
    endpoint = Endpoint.parse(connect)
    if listener_probe.probe(endpoint.host, endpoint.port, _HANDSHAKE_S, asks=True).protocol == "zeromq":
        return _zeromq_handshake(folder, connect)
    valid = {peer.line.certificate: peer.name for peer in found.valid()}
    pair, names = (found.certificate_file, found.private_key_file), found.issued()
    roots = found.authority + b"".join(peer.certificate_pem for peer in found.valid()) if found.authority else b""
    brokers = [name for name, role in names.items() if role == "broker"]
    met = tls_probe.probe(endpoint.host, endpoint.port, valid, pair, roots=roots, names=names, hosts=brokers)
    if met.outcome is tls_probe.Outcome.MET and met.certificate is not None:
        name = valid.get(met.certificate) or _issued_to(met.certificate)
        return Row("handshake", "ok", f"{connect}: {name} over TLS; both sides trust each other")
    if met.outcome in {tls_probe.Outcome.REFUSED_HERE, tls_probe.Outcome.REFUSED_THERE}:
        advice = "`twinlink key trust` on the side that refuses the other"
        return Row("handshake", "fail", f"{connect}: {met.outcome.value}", advice)
    return _zeromq_handshake(folder, connect)


def _issued_to(certificate: bytes) -> str:
    from twinlink.identity import certificates

    issued = certificates.issued(certificate)
    return issued.name if issued is not None else "a peer"


def _zeromq_handshake(folder: str, connect: str) -> Row:
    try:
        with twinlink.open("zeromq", connect=connect, identity=folder) as link:
            link.wait_ready(_HANDSHAKE_S)
            return Row("handshake", "ok", f"{connect}: {', '.join(link.peers())}; both sides trust each other")
    except AuthenticationError as error:
        return Row("handshake", "fail", "one side refuses the other", str(error))
    except TwinlinkError as error:
        return Row("handshake", "warn", f"no peer over zeromq: {error}", "is it a listener with this transport?")
