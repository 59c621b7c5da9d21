"""Make the keys of this node, and say which peers it trusts.

actions:

  new NAME                make the identity NAME with its --role, and print its
                          public line
  show                    print the public line of this node
  trust LINE              trust the peer with this public line, --as its name;
                          without LINE, with any certificate of the authority
                          in ca.crt
  list                    list this node and the peers that it trusts
  revoke NAME             refuse this peer from now on
  rotate                  make the next keys of this node, and print their
                          public line; with --use, begin to use them
  router NAMESPACE=NAME,NAME ...
                          write the configuration of the Zenoh router with this
                          identity, for the nodes of each namespace
  broker LISTENER=NAME,NAME ...
                          write the files of the MQTT broker with this
                          identity, for each listener and its connectors
"""

import argparse
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from twinlink.errors import ConfigurationError

from ..appkit import convert
from ..appkit.console import DONE, Output, log
from ..appkit.options import Parser

_say = partial(log, "twinlink key")
EXAMPLES = """
twinlink key new gnb-1 --role gnb --identity gnb-1.id
twinlink key trust LINE --as twin-1 --role twin --identity gnb-1.id
twinlink key list --identity gnb-1.id
twinlink key revoke twin-1 --identity gnb-1.id
twinlink key router twinlink/cell-7=gnb-1,twin-1 --identity router-1.id
twinlink key broker twin-1=gnb-1,gnb-2 --identity broker-1.id
"""
_ROLES = ("gnb", "twin", "observer", "router", "broker")
_ROUTER_PORT, _BROKER_PORT = 7447, 8883


def add_options(parser: Parser) -> None:
    """Declare the options."""
    parser.add_argument("action", choices=tuple(_RUN), metavar="ACTION", help=f"one of {', '.join(_RUN)}, as above")
    parser.add_argument(
        "subject", nargs="*", default=None, metavar="SUBJECT", help="what the action takes: NAME, LINE..., as above"
    )
    parser.add_argument("--identity", type=Path, metavar="DIR", help="the folder of this node's identity")
    parser.add_argument(
        "--role", choices=_ROLES, help="new: role of this node; trust: of the peer. Only a twin may send decisions"
    )
    parser.add_argument("--as", dest="as_name", metavar="NAME", help="trust: the peer's name, which its line must have")
    parser.add_argument("--beside", action="store_true", help="trust: beside the peer's other key, while it rotates")
    parser.add_argument("--fingerprint", metavar="SHA256:...", help="revoke: only the key with this fingerprint")
    parser.add_argument("--use", action="store_true", help="rotate: use the next keys, once the peers trust them")
    parser.add_argument(
        "--days", type=convert.count, default=365, metavar="N", help="new, rotate: days until the keys expire"
    )
    parser.add_argument(
        "--host", action="append", metavar="HOST", help="new: a name or address under which peers connect to this node"
    )
    parser.add_argument(
        "--listen",
        action="append",
        metavar="HOST[:PORT]",
        help="router, broker: where it listens, by default on every IPv4 address; may be repeated; default port "
        f"{_ROUTER_PORT} of a router, {_BROKER_PORT} of a broker",
    )
    parser.add_argument("--json", action="store_true", help="list: one JSON object on stdout")


def run(given: argparse.Namespace) -> int:
    """Run the action."""
    if given.identity is None:
        raise ConfigurationError("give the folder of the identity: --identity DIR, or TWINLINK_IDENTITY")
    _become_owner(given.identity)
    _RUN[given.action](given)
    return DONE


def _become_owner(folder: Path) -> None:
    """Started by root, act as the user to whom the folder belongs, as a broker's: root trusts no other user's files."""
    if os.geteuid() != 0 or not folder.exists() or (owner := folder.stat()).st_uid == 0:
        return
    # Imported before: that user may not be able to read the package.
    from twinlink.transports import mqtt_access, zenoh_router  # noqa: F401

    os.setgroups([])
    os.setresgid(owner.st_gid, owner.st_gid, owner.st_gid)
    os.setresuid(owner.st_uid, owner.st_uid, owner.st_uid)
    _say(f"{folder} is of the user {owner.st_uid}: acting as that user")


def _new(given: argparse.Namespace) -> None:
    from twinlink.identity import Identity

    if given.role is None:
        raise ConfigurationError(f"give --role: one of {', '.join(_ROLES)}")
    made = Identity.create(given.identity, _name(given), given.role, hosts=given.host or (), expiry=_expiry(given))
    _say(f"made {made.name}, role {made.role}, in {given.identity}: {made.fingerprint}, expires {_day(made.expiry)}")
    _say(f"on each peer: twinlink key trust LINE --as {made.name} --role {made.role} --identity DIR, with this LINE:")
    _print(str(made.line))


def _show(given: argparse.Namespace) -> None:
    from twinlink.identity import Identity

    identity = Identity.load(given.identity)
    role = f", role {identity.role}" if identity.role else ""
    _say(f"{identity.name}{role}: {identity.fingerprint}, expires {_day(identity.expiry)}")
    _say(f"a ZeroMQ listener that does not trust it logs its CURVE key: {identity.line.curve_fingerprint}")
    _print(str(identity.line))


def _trust(given: argparse.Namespace) -> None:
    from twinlink.identity import PublicLine, trust

    if not given.subject and given.as_name is not None:
        _trust_issued(given)
        return
    line = PublicLine.parse(" ".join(given.subject or ()))
    if given.as_name is None:
        raise ConfigurationError(
            f"give --as NAME: the peer's name that you expect in the line; this one is of {line.name}"
        )
    if given.as_name != line.name:
        raise ConfigurationError(
            f"this line is of {line.name}, not of {given.as_name}: a peer has the same name on both sides; take the "
            f"line that `twinlink key show` prints on the host of {given.as_name}"
        )
    role = given.role or line.role
    changed = trust.trust(given.identity, line, role, beside=given.beside)
    what = f"trusts {line.name}, role {role}" if changed else f"trusted {line.name}, role {role}, before"
    _say(f"{given.identity} {what}: {line.fingerprint}, expires {_day(line.expiry)}")


def _trust_issued(given: argparse.Namespace) -> None:
    """Trust a name, where an authority issues the certificates."""
    from twinlink.identity import trust

    if given.role is None:
        raise ConfigurationError(f"give --role: what {given.as_name} may do here, one of {', '.join(_ROLES)}")
    changed = trust.trust_issued(given.identity, given.as_name, given.role)
    what = "trusts" if changed else "trusted"
    before = "" if changed else ", before"
    _say(
        f"{given.identity} {what} {given.as_name}, role {given.role}{before}, with any certificate that the authority "
        "of ca.crt issues in this name",
    )


def _list(given: argparse.Namespace) -> None:
    from twinlink.identity import Identity

    identity = Identity.load(given.identity)
    own = _row("own", identity, identity.role or "", identity.curve_public if identity.secret is not None else b"")
    rows = [_row("trusted", peer, peer.role, peer.curve_public) for peer in identity.trusted]
    rows += [_row("revoked", peer, peer.role, peer.curve_public) for peer in identity.revoked]
    rows += [_name_row("trusted", name, role) for name, role in identity.named.items() if name in identity.issued()]
    rows += [_name_row("revoked", name, "") for name in sorted(identity.revoked_names)]
    text = "\n".join(
        f"{row['state']:8} {row['name']:16} {row['role']:8} {row['expires'][:10]}  {row['fingerprint']}"
        for row in [own, *rows]
    )
    Output(given.json).emit({"own": own, "peers": rows}, text)


def _row(state: str, one: Any, role: str, curve: bytes) -> dict[str, str]:
    if state == "trusted" and one.expiry <= datetime.now(UTC):
        state = "expired"
    return {
        "state": state,
        "name": one.name,
        "role": role,
        "expires": one.expiry.isoformat(),
        "fingerprint": one.fingerprint,
        "curve": curve.decode(),
    }


def _name_row(state: str, name: str, role: str) -> dict[str, str]:
    """The row of a peer that is trusted, or revoked, by its name: with any certificate of the authority."""
    return {"state": state, "name": name, "role": role, "expires": "", "fingerprint": "by ca.crt", "curve": ""}


def _revoke(given: argparse.Namespace) -> None:
    from twinlink.identity import Identity, trust

    name = _name(given)
    revoked = trust.revoke(given.identity, name, given.fingerprint)
    if not given.fingerprint and name in Identity.load(given.identity).revoked_names:
        _say(f"{given.identity} refuses all certificates that the authority of ca.crt issues for {name}")
    for peer in revoked:
        _say(f"{given.identity} refuses {peer.name} with the key {peer.fingerprint} from now on")


def _rotate(given: argparse.Namespace) -> None:
    from twinlink.identity import trust

    if given.use:
        line = trust.complete_rotation(given.identity)
        _say(f"{given.identity} uses the key {line.fingerprint} from now on; peers can revoke the one before it")
    else:
        line = trust.prepare_rotation(given.identity, _expiry(given))
        _say(f"the next key is {line.fingerprint}, expires {_day(line.expiry)}, and not used yet")
        _say(f"on each peer: twinlink key trust LINE --as {line.name} --role {line.role} --beside --identity DIR")
        _say(f"then here: twinlink key rotate --use --identity {given.identity}")
    _print(str(line))


def _router(given: argparse.Namespace) -> None:
    from twinlink.identity import Identity
    from twinlink.transports import Endpoint
    from twinlink.transports.zenoh_router import write_router

    namespaces = _groups(given, "give each namespace and its nodes, such as twinlink/cell-7=gnb-1,twin-1")
    listens = [Endpoint.parse(endpoint, _ROUTER_PORT) for endpoint in given.listen or ["0.0.0.0"]]
    written = write_router(Identity.load(given.identity), namespaces, listens)
    for namespace, names in namespaces.items():
        _say(f"namespace {namespace}: {', '.join(names)}")
    _say(f"the router listens on {', '.join(map(str, listens))}")
    _say(f"the owner of {given.identity} starts it with: zenohd --config {written}")
    _say("zenohd reads it once: after each change of keys or namespaces, run this again, and restart zenohd")
    _print(str(written))


def _broker(given: argparse.Namespace) -> None:
    from twinlink.identity import Identity
    from twinlink.transports import Endpoint
    from twinlink.transports.mqtt_access import write_broker

    links = _groups(given, "give each listener and its connectors, such as twin-1=gnb-1,gnb-2")
    listens = [Endpoint.parse(endpoint, _BROKER_PORT) for endpoint in given.listen or ["0.0.0.0"]]
    written = write_broker(Identity.load(given.identity), links, listens)
    for listener, connectors in links.items():
        _say(f"listener {listener}: {', '.join(connectors)}")
    _say(f"it listens on {', '.join(map(str, listens))} when mosquitto.conf says: include_dir {written.parent}")
    _say(f"mosquitto's user must be able to read {given.identity}: chown -R mosquitto {given.identity}")
    _say("then restart mosquitto. After `key revoke` and this, a reload (SIGHUP) ends the rights of that name")
    _print(str(written))


def _groups(given: argparse.Namespace, advice: str) -> dict[str, list[str]]:
    """The names in each ``GROUP=NAME,NAME``."""
    groups: dict[str, list[str]] = {}
    for one in given.subject or ():
        group, _, names = one.partition("=")
        found = groups.setdefault(group, [])
        found += [name for name in dict.fromkeys(names.split(",")) if name and name not in found]
    if not groups or not all([*groups, *groups.values()]):
        raise ConfigurationError(advice)
    return groups


def _name(given: argparse.Namespace) -> str:
    names: list[str] = given.subject or []
    if len(names) != 1:
        raise ConfigurationError(f"`twinlink key {given.action}` takes one NAME")
    return names[0]


def _expiry(given: argparse.Namespace) -> datetime:
    return datetime.now(UTC) + timedelta(days=given.days)


def _day(time: datetime) -> str:
    return f"{time:%Y-%m-%d}"


def _print(line: str) -> None:
    Output(as_json=False).line(line)


_RUN: dict[str, Callable[[argparse.Namespace], None]] = {
    "new": _new,
    "show": _show,
    "trust": _trust,
    "list": _list,
    "revoke": _revoke,
    "rotate": _rotate,
    "router": _router,
    "broker": _broker,
}
