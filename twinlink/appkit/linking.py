"""The link of a command: its options, opening it, waiting for a peer, and its events as lines of text."""

import argparse
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

import twinlink
from twinlink import events as ev
from twinlink import options as link_options
from twinlink.errors import AuthenticationError, ConfigurationError, LinkClosed, PeerTimeout
from twinlink.opening import open_attached
from twinlink.process.guarded_thread import GuardedThread
from twinlink.process.listener_probe import probe
from twinlink.transports import PORT, Endpoint, Transport
from twinlink.transports.refusals import Refusal

from . import convert
from .console import Stop, log
from .options import Container, Group, Parser

LISTEN = f"tcp/0.0.0.0:{PORT}"
CONNECT = f"tcp/127.0.0.1:{PORT}"
# counted in stats(); no action is needed
_COUNTED = (
    ev.Duplicate, ev.LimitExceeded, ev.Lost, ev.PeerCaughtUp, ev.PeerSlow, ev.Reordered, ev.Restarted, ev.Stale,
    ev.SyncChanged,
)  # fmt: skip
LOOK_S = 0.1  # how often a wait checks whether the end was requested
_NO_PEER_S = 5.0  # on any but the longest paths, a peer is found well within this time
CONNECT_S = 2.0  # for resolving a name, and for each address


def add_options(parser: Parser, *, listens: bool | None, flow: str, host: str | None = None) -> None:
    """Declare the options of a link, of its flow and of the output; ``listens`` and ``host`` as `add_link_options`."""
    add_link_options(parser, listens=listens, host=host)
    parser.add_argument("--flow", default=flow, metavar="NAME", help="name of the flow")
    parser.add_argument("--json", action="store_true", help="JSON Lines on stdout, the last one a summary")


def add_timeout_option(parser: Parser, waits: str) -> None:
    """Declare ``--timeout``; ``waits`` is its help."""
    parser.add_argument("--timeout", type=convert.seconds, default=5.0, metavar="S", help=waits)


def add_link_options(
    parser: Parser | Group,
    *,
    listens: bool | None,
    other: str = "the other side",
    node: str | None = None,
    host: str | None = None,
) -> None:
    """Declare the link's options.

    Args:
        parser: a parser or a group of one.
        listens: the default side of the command; None: it has no default.
        other: what the peer is called in the help.
        node: the default name of this side.
        host: the command, or another program, that listens at the positional argument HOST, short for ``--connect``;
            None: there is none.
    """
    side = parser.exclusive()
    side.add_argument(
        "--listen",
        default=LISTEN if listens else None,
        type=convert.listen,
        metavar="HOST[:PORT]",
        help=f"listen here for {other}; default port {PORT}",
    )
    side.add_argument(
        "--connect",
        default=CONNECT if listens is False else None,
        type=convert.connect,
        metavar="HOST[:PORT],...",
        help=f"where {other} listens, by default at port {PORT}; with `--option mode=client`, a Zenoh router, or "
        "several with commas between them",
    )
    if host is not None:
        program = f"`{host}`" if host.startswith("twinlink ") else host
        parser.add_argument(  # not of the group: argparse mixes no member of one with options
            "connect",
            nargs="?",
            action=_Host,
            type=convert.connect,
            metavar="HOST[:PORT]",
            default=CONNECT if listens is False else None,
            help=f"short for --connect: where {program} listens, by default at port {PORT}",
        )
    add_joining_options(parser, other=other, node=node)


def add_joining_options(parser: Container, *, other: str = "the other side", node: str | None = None) -> None:
    """Declare those of the link's options that do not say where it is; arguments as `add_link_options`."""
    parser.add_argument(
        "--transport",
        default="zeromq",
        type=convert.transport,
        metavar="NAME",
        help="zeromq, zenoh, mqtt, websocket or tcp, the same on both sides",
    )
    default = node and _DefaultName(node)
    parser.add_argument("--node", default=default, metavar="NAME", help=f"name of this side, as {other} sees it")
    parser.add_argument(
        "--identity",
        metavar="DIR",
        help="folder of this side's identity (`twinlink key new`): the link is encrypted and meets only peers that are "
        "trusted there; its name is that of the identity",
    )
    parser.add_argument("--require-identity", action="store_true", help="do not open a link without --identity")
    parser.add_argument(
        "--option",
        action="append",
        type=convert.link_option,
        metavar="NAME=VALUE",
        help="an option of the link or its transport; may be given several times",
    )


def add_mirror_option(parser: Container) -> None:
    """Declare ``--mirror``, which `open_link` heeds."""
    parser.add_argument(
        "--mirror",
        type=convert.mirror,
        metavar="HOST[:PORT]",
        help=f"show observers what passes the link, by default at port {convert.MIRROR_PORT}: `twinlink list`, `sub`, "
        "`record` and `live` connect there; with --identity, it takes the role observer",
    )


class _Host(argparse.Action):
    """Stores HOST, unless an option says where the link is; options are parsed before it."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option: str | None = None
    ) -> None:
        if values is None:  # no HOST
            return
        for name in ("connect", "listen"):
            if getattr(namespace, name, None) is not None:
                raise argparse.ArgumentError(self, f"not allowed with argument --{name}")
        setattr(namespace, self.dest, values)


class _DefaultName(str):
    """The name of a node that was not given; an identity has its own."""


def open_link(
    given: argparse.Namespace, attach: Callable[[twinlink.Link], object] = lambda link: None
) -> twinlink.Link:
    """Open the link that the options describe; ``attach`` is given it before it sends or receives anything."""
    check_link(given)  # refuses an option with the name of an argument of `twinlink.open`

    def attach_all(link: twinlink.Link) -> None:
        if getattr(given, "mirror", None) is not None:
            link.mirror(given.mirror)  # first: if it cannot be opened, there is no recording that would be left behind
        attach(link)

    return open_attached(
        attach_all,
        partial(
            twinlink.open,
            given.transport,
            listen=given.listen,
            connect=_routers(given.connect),
            node=_node(given),
            identity=given.identity,
            **dict(given.option or []),
        ),
    )


def check_link(given: argparse.Namespace) -> Transport:
    """Make the link's transport without opening it.  Raises what `open_link` raises before it opens the transport."""
    check_identity(given)
    return link_options.make_transport(
        given.transport,
        listen=given.listen,
        connect=_routers(given.connect),
        node=_node(given),
        identity=given.identity,
        options=dict(given.option or []),
    )


def check_identity(given: argparse.Namespace) -> None:
    """Raises ConfigurationError if an identity is required, and none is given."""
    if given.require_identity and not given.identity:
        raise ConfigurationError(
            "a link without an identity is not opened, as --require-identity says: make one with `twinlink key new`, "
            "and give it with --identity DIR or TWINLINK_IDENTITY"
        )


def _node(given: argparse.Namespace) -> str | None:
    """The name that was given, or the command's; None: that of the identity, or one that is made up."""
    return None if given.identity is not None and isinstance(given.node, _DefaultName) else given.node


def _routers(connect: str | None) -> str | list[str] | None:
    """The argument ``connect`` of `twinlink.open`: a list if ``--connect`` names several endpoints."""
    return connect.split(",") if connect and "," in connect else connect


def tell_if_no_peer(link: twinlink.Link, tell: Callable[[str], object]) -> None:
    """If no peer is up after `_NO_PEER_S`, call ``tell`` once with what to check, on a thread of its own."""

    def wait() -> None:
        try:
            link.wait_ready(_NO_PEER_S)
        except PeerTimeout as error:
            tell(f"{error}; still trying")
        except LinkClosed:
            pass  # the program ends

    GuardedThread(wait, f"twinlink-{link.node}-no-peer", link._transport.internal_errors).start()


def _is_decided(link: twinlink.Link) -> bool:
    """Whether a peer is up, or none will be until a person repairs something."""
    return bool(link.peers()) or link._transport.authentication_problem is not None


def check_size(given: argparse.Namespace, link: twinlink.Link) -> None:
    """Raises ConfigurationError if the link cannot carry messages of ``--size``."""
    if given.size > link.max_payload:
        raise ConfigurationError(f"--size {given.size}: this link takes at most {link.max_payload} octets")


def endpoint(given: argparse.Namespace) -> str:
    """The transport and endpoint, for messages to a person."""
    side = f"listening at {given.listen}" if given.listen else f"connecting to {given.connect}"
    return f"{given.transport}, {side}"


def wait_for_peer(link: twinlink.Link, stop: Stop, given: argparse.Namespace, name: str, other: str | None) -> None:
    """Wait up to ``--timeout`` for a peer; returns without one when the end is requested.

    Raises PeerTimeout.  ``name`` is this command, ``other`` the command that should run on the other side; None: any.
    """
    timeout = given.timeout
    log(name, f"{endpoint(given)}, waits up to {timeout:g} s for a peer")
    end = time.monotonic() + timeout
    while not (stop.requested or _is_decided(link) or link.closed) and (left := end - time.monotonic()) > 0:
        link._wait(lambda: _is_decided(link), min(LOOK_S, left))
    if not (stop.requested or link.peers()):
        error = link._no_peer_error(timeout)
        if other is None or isinstance(error, AuthenticationError):
            raise error
        raise PeerTimeout(f"{error} (does `{other}` run there?)")


def connection_problem(connect: str) -> str | None:
    """The system's message why no TCP connection to an endpoint can be made, or None if it can."""
    target = Endpoint.parse(connect)
    return probe(target.host, target.port, CONNECT_S).problem


class Watch:
    """Collects the events of a link on its I/O thread; the command's thread logs them.

    Attributes:
        missing: messages that peers sent and that did not arrive.
    """

    def __init__(self, name: str, link: twinlink.Link) -> None:
        self.missing = 0
        self._name = name
        self._nodes: dict[int, str] = {}
        self._events: SimpleQueue[ev.Event] = SimpleQueue()
        link.events(handler=self._events.put)

    def node(self, epoch: int) -> str | None:
        """The name of a session's node, or None if no HELLO of it has arrived."""
        return self._nodes.get(epoch)

    def tell(self) -> None:
        """Log the events since the last call."""
        while not self._events.empty():
            event = self._events.get()
            self._take(event)
            if not isinstance(event, _COUNTED):
                log(self._name, sentence(event))

    def _take(self, event: ev.Event) -> None:
        if isinstance(event, ev.PeerUp):
            self._nodes[event.epoch] = event.node
        elif isinstance(event, ev.Gap):
            self.missing += event.end - event.first
        elif isinstance(event, ev.Reordered):
            self.missing -= 1


def refusal(event: ev.Refused) -> str:
    """What the listener has refused, and what repairs it."""
    return Refusal(event.identity, event.address, event.reason).advice(None)


def _messages(first: int, end: int, flow: str) -> str:
    return f"{end - first:,} message{'' if end - first == 1 else 's'} of flow {flow}"


def _span(first: int, end: int) -> str:
    return f"{first}" if end - first == 1 else f"{first} to {end - 1}"


def sentence(event: ev.Event) -> str:
    """What has happened, for a person."""
    match event:
        case ev.PeerUp(node=node):
            return f"peer {node} is up"
        case ev.PeerDown(node=node, reason=reason):
            return f"peer {node} is gone ({reason})"
        case ev.Gap(flow=flow, first=first, end=end):
            return f"{_messages(first, end, flow)} did not arrive: {_span(first, end)}"
        case ev.Unclaimed(flow=flow, first=first, end=end):
            return f"refused {_messages(first, end, flow)}, which has no receiver here: {_span(first, end)}"
        case ev.Malformed(reason="transport", count=number):
            return f"a program that speaks another protocol connects ({number} so far): has the peer another transport?"
        case ev.Malformed(reason="identity", count=number):
            return f"dropped a frame that its sender cannot prove to be its own, or may not send ({number} so far)"
        case ev.Refused():
            return refusal(event)
        case ev.Malformed(reason=reason, count=number):
            return f"dropped a malformed message ({reason}; {number} so far)"
        case ev.HandlerError(flow=flow, error=error):
            return f"a handler of flow {flow} failed: {error}"
        case ev.InternalError(where=where, error=error):
            return f"{where} raised {error}"
        case ev.Restarted(node=node):
            return f"peer {node} has restarted"
        case ev.PeerSlow(node=node, flow=flow, behind=behind):
            return f"peer {node} is {behind} messages behind on flow {flow}: it reads slower than is sent"
        case ev.PeerCaughtUp(node=node, flow=flow):
            return f"peer {node} has caught up on flow {flow}"
        case ev.Reordered(flow=flow, sequence=sequence):
            return f"message {sequence} of flow {flow}, which did not arrive before, has come after all"
        case ev.Duplicate(flow=flow, sequence=sequence):
            return f"message {sequence} of flow {flow} came twice, and was delivered once"
        case ev.Stale(flow=flow, first=first, end=end):
            return f"too old on arrival: {_messages(first, end, flow)}, {_span(first, end)}"
        case ev.Lost(flow=flow, first=first, end=end, reason=reason, peers=peers):
            to = f" to {', '.join(peers)}" if peers else ""
            return f"lost{to}: {_messages(first, end, flow)}, {_span(first, end)}: {reason}"
        case ev.LimitExceeded(limit=limit, count=count):
            return f"something of a peer was refused for the limit {limit} ({count} so far)"
        case ev.SyncChanged(flow=flow, state=state):
            return f"flow {flow} is {state}"
    return f"{type(event).__name__}: {event}"  # of a later version
