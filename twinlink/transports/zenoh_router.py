"""The configuration of a Zenoh router that has an identity, between nodes with identities.

The router takes TLS connections of the nodes that it was given, with the certificates that it trusts.  A node puts
below its own name in its own namespaces, ``<namespace>/<name>/traffic/<flow>`` and ``.../ack/<flow>``, and hears
nothing of other namespaces.  All else is denied.  As between two nodes (`zenoh_identity`), a node proves its key with
a password besides its certificate, as the owner of a pinned certificate could issue others in the name of any node.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import ConfigurationError
from ..identity.folder import Folder
from ..identity.identity import Identity
from ..identity.public_line import INTERMEDIARIES
from .base import Endpoint
from .zenoh_identity import SUBSCRIBED, Entry, access_control, dictionary, rule, subject
from .zenoh_namespace import check_namespace

FOLDER, CONFIGURATION, PASSWORDS = "router", "zenohd.json5", "passwords"  # in that of the identity


def write_router(identity: Identity, namespaces: Mapping[str, Sequence[str]], listen: Sequence[Endpoint]) -> Path:
    """Write the configuration of a router, whose identity trusts the nodes that are named by namespace.

    Returns its file, which zenohd reads when it starts.  Raises ConfigurationError.
    """
    if identity.role != "router":
        raise ConfigurationError(
            f"{identity.folder} is the identity of {identity.name}, role {identity.role}: make one for the router with "
            "`twinlink key new NAME --role router --identity DIR`"
        )
    folder = (identity.folder / FOLDER).absolute()
    named = {name for names in namespaces.values() for name in names}
    peers = [peer for peer in identity.valid() if peer.name in named and peer.role not in INTERMEDIARIES]
    if missing := ", ".join(sorted(named - {peer.name for peer in peers})):
        raise ConfigurationError(
            f"no valid key of {missing} is trusted in {identity.folder}: run `twinlink key trust LINE --as NAME "
            f"--identity {identity.folder}` with the line that `twinlink key show` prints there"
        )
    access = access_control(
        [one for namespace, names in namespaces.items() for one in _rules(namespace, names)],
        [subject(name, peers) for name in sorted(named)],
        [_policy(name, namespaces) for name in sorted(named)],
    )
    roots = b"".join(peer.certificate_pem for peer in peers)
    certificate, private_key = identity.file_names("zenohd")
    tls = {
        "root_ca_certificate_base64": base64.b64encode(roots).decode(),
        "listen_certificate": certificate,
        "listen_private_key": private_key,
        "enable_mtls": True,
        "close_link_on_expiration": True,
    }
    settings = {
        "mode": "router",
        "listen": {"endpoints": [str(endpoint).replace("tcp/", "tls/", 1) for endpoint in listen]},
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
        "timestamping": {"enabled": False},  # twinlink stamps its messages itself
        "adminspace": {"enabled": False},
        "plugins_loading": {"enabled": False},
        "transport": {
            "link": {"protocols": ["tls"], "tls": tls},
            "auth": {"usrpwd": {"dictionary_file": str(folder / PASSWORDS)}},
        },
        "access_control": access,
    }
    try:
        configuration = f"{json.dumps(settings, indent=2)}\n".encode()
        with Folder.opened(identity.folder, exclusive=True) as opened:
            opened.write_folder(FOLDER, {PASSWORDS: dictionary(identity, peers), CONFIGURATION: configuration})
    except OSError as error:
        raise ConfigurationError(f"{error.filename or folder} cannot be written: {error.strerror}") from error
    return folder / CONFIGURATION


def _rules(namespace: str, names: Sequence[str]) -> list[Entry]:
    """The rules of one namespace: each node subscribes, hears all, and puts below its own name."""
    check_namespace(namespace, "namespace")
    return [
        rule(f"{namespace} subscribe", "declare_subscriber", ["ingress", "egress"], f"{namespace}/{SUBSCRIBED}"),
        rule(f"{namespace} hear", "put", ["egress"], *_keys(namespace, "*")),
        *(rule(f"{namespace} from {name}", "put", ["ingress"], *_keys(namespace, name)) for name in names),
    ]


def _policy(name: str, namespaces: Mapping[str, Sequence[str]]) -> Entry:
    own = [namespace for namespace, names in namespaces.items() if name in names]
    rules = [f"{namespace} {what}" for namespace in own for what in ("subscribe", "hear", f"from {name}")]
    return {"rules": rules, "subjects": [name]}


def _keys(namespace: str, name: str) -> list[str]:
    return [f"{namespace}/{name}/{what}/*" for what in ("traffic", "ack")]
