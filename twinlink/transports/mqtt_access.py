"""What clients with identities may do at a mosquitto broker: its access list, and the configuration of a listener.

A node publishes below its own name, and its role decides on which topics.  A connector subscribes to what is below the
name of its listener, a listener to what is below the names of its connectors.  All else is denied.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from ..errors import ConfigurationError
from ..identity.folder import Folder
from ..identity.identity import Identity
from ..identity.public_line import INTERMEDIARIES, Role
from .base import Endpoint

FOLDER, CONFIGURATION, TRUSTED, ACCESS = "broker", "mosquitto.conf", "trusted.pem", "access"
SETTINGS = """\
cafile {trusted}
certfile {certificate}
keyfile {key}
tls_version tlsv1.3
require_certificate true
use_identity_as_username true
allow_anonymous false
acl_file {access}
"""
HEAD = """\
# Written by `twinlink key broker`, which replaces it.  Include it before other listeners (include_dir).
# Recommended for the whole broker (docs/mqtt.md): max_queued_messages 0, set_tcp_nodelay true
per_listener_settings true
"""
WRITES: Mapping[Role, tuple[str, ...]] = {  # every role may send hellos, acks and trials of the broker's limit
    "twin": ("topic write {name}/#",),
    "gnb": ("topic deny {name}/traffic/control", "topic write {name}/#"),
    "observer": (
        "topic write {name}/ack/+",
        "topic write {name}/traffic/_link",
        "topic write {name}/traffic/limit/+",
    ),
}
READS = "topic read {name}/traffic/+", "topic read {name}/ack/+"


def access_list(links: Mapping[str, Iterable[str]], roles: Mapping[str, Role]) -> str:
    """The file ``acl_file`` of mosquitto.

    Args:
        links: by the name of each listener, the names of its connectors.
        roles: of all these nodes.
    """
    hears: dict[str, set[str]] = {}
    for listener, connectors in links.items():
        hears.setdefault(listener, set())
        for connector in connectors:
            hears[listener].add(connector)
            hears.setdefault(connector, set()).add(listener)
    lines = []
    for name in sorted(hears):
        lines.append(f"user {name}")
        lines += [line.format(name=name) for line in WRITES[roles[name]]]
        lines += [line.format(name=other) for other in sorted(hears[name]) for line in READS]
    return "".join(f"{line}\n" for line in lines)


def write_broker(identity: Identity, links: Mapping[str, Iterable[str]], listen: Iterable[Endpoint]) -> Path:
    """Write the files of an external broker; returns the one to include in its configuration.

    Args:
        identity: of the broker.  It trusts the nodes.
        links: by the name of each listener, the names of its connectors.
        listen: the endpoints of the broker.

    Raises ConfigurationError.
    """
    if identity.role not in {"broker", None}:
        raise ConfigurationError(
            f"{identity.folder} is the identity of {identity.name}, role {identity.role}: make one for the broker with "
            "`twinlink key new NAME --role broker --identity DIR`"
        )
    keys = identity.valid()
    # mosquitto checks only the name in a certificate, so one of the authority could pass for a pinned one.
    roles = identity.issued() if identity.authority else {peer.name: peer.role for peer in keys}
    roles = {name: role for name, role in roles.items() if role not in INTERMEDIARIES}
    named = {name for listener, connectors in links.items() for name in (listener, *connectors)}
    if missing := ", ".join(sorted(named - set(roles))):
        raise ConfigurationError(
            f"no valid key of {missing} is trusted in {identity.folder}: run `twinlink key trust LINE --as NAME "
            f"--identity {identity.folder}` with the line that `twinlink key show` prints there"
        )
    folder = (identity.folder / FOLDER).absolute()
    certificate, private_key = identity.file_names("mosquitto")
    settings = SETTINGS.format(
        trusted=folder / TRUSTED,
        certificate=certificate,
        key=private_key,
        access=folder / ACCESS,
    )
    ports = [f"\nlistener {one.port} {one.host.strip('[]')}\n{settings}" for one in listen]
    roots = b"".join(peer.certificate_pem for peer in keys if peer.name in named) + identity.authority
    try:
        files = {
            TRUSTED: roots,
            ACCESS: access_list(links, roles).encode(),
            CONFIGURATION: (HEAD + "".join(ports)).encode(),
        }
        with Folder.opened(identity.folder, exclusive=True) as opened:
            opened.write_folder(FOLDER, files)
    except OSError as error:
        raise ConfigurationError(f"{error.filename or folder} cannot be written: {error.strerror}") from error
    return folder / CONFIGURATION
