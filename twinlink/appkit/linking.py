"""What commands with a link share: its options, opening it, and waiting for the other side."""

import argparse
import socket
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

import twinlink
from twinlink import options as link_options
from twinlink.errors import ConfigurationError, LinkClosed, PeerTimeout
from twinlink.events import Event, Gap, HandlerError, Malformed, PeerDown, PeerUp, Reordered, Unclaimed
from twinlink.process.resolver import addresses
from twinlink.transports import Endpoint, Transport

from . import convert
from .console import Stop, log

PORT = 7447
LISTEN = f"tcp/0.0.0.0:{PORT}"
CONNECT = f"tcp/127.0.0.1:{PORT}"
NOBODY_S = 5.0  # who is there has been found long before, on any path but the longest
CONNECT_S = 2.0  # for a name to be resolved, and for each address
ADDRESSES = 3  # of a name are tried
LOOK_S = 0.1  # how often a wait looks whether the end was asked for


def add_options(parser: argparse.ArgumentParser, *, listens: bool | None, flow: str) -> None:
    """Declare the options of a link, of the flow that is used, and of output; ``listens`` as `add_link_options`."""
    add_link_options(parser, listens=listens)
    parser.add_argument("--flow", default=flow, metavar="NAME", help="name of the flow")
    parser.add_argument("--json", action="store_true", help="JSON Lines on stdout, the last one a summary")


def add_link_options(
    parser: argparse._ActionsContainer, *, listens: bool | None, other: str = "the other side", node: str | None = None
) -> None:
    """Declare the link's options.

    Args:
        parser: or a group of one.
        listens: which side the command is when nobody says; None: none.
        other: who is at the other end.
        node: name of this side when nobody says.
    """
    parser.add_argument(
        "--transport",
        default="zeromq",
        type=convert.transport,
        metavar="NAME",
        help="zeromq, zenoh or mqtt, the same on both sides",
    )
    side = parser.add_mutually_exclusive_group()
    side.add_argument(
        "--listen", default=LISTEN if listens else None, metavar="tcp/HOST:PORT", help=f"wait here for {other}"
    )
    side.add_argument(
        "--connect",
        default=CONNECT if listens is False else None,
        metavar="tcp/HOST:PORT[,...]",
        help=f"where {other} listens; with `--option mode=client`, a Zenoh router, or several with commas between them",
    )
    parser.add_argument("--node", default=node, metavar="NAME", help=f"name of this side, as {other} sees it")
    parser.add_argument(
        "--option",
        action="append",
        type=convert.link_option,
        metavar="NAME=VALUE",
        help="an option of the link or its transport; may be given several times",
    )


def open_link(given: argparse.Namespace) -> twinlink.Link:
    """Open the link that the options describe."""
    check_link(given)  # an option that is called like an argument of `twinlink.open` would not get that far
    return twinlink.open(
        given.transport,
        listen=given.listen,
        connect=routers(given.connect),
        node=given.node,
        **dict(given.option or []),
    )


def check_link(given: argparse.Namespace) -> Transport:
    """The link's transport, not open: whatever `open_link` refuses without opening it has been refused."""
    return link_options.make_transport(
        given.transport,
        listen=given.listen,
        connect=routers(given.connect),
        node=given.node,
        options=dict(given.option or []),
    )


def routers(connect: str | None) -> str | list[str] | None:
    """What `twinlink.open` takes as ``connect``: a list where ``--connect`` names several endpoints."""
    return connect.split(",") if connect and "," in connect else connect


def tell_if_nobody(link: twinlink.Link, tell: Callable[[str], object]) -> None:
    """Tell once, from a thread of its own, when nobody is there after NOBODY_S, and what to check."""

    def wait() -> None:
        try:
            link.wait_ready(NOBODY_S)
        except PeerTimeout as error:
            tell(f"{error}; it goes on trying")
        except LinkClosed:
            pass  # nobody wants to know any more

    threading.Thread(target=wait, name=f"twinlink-{link.node}-nobody", daemon=True).start()


def check_size(given: argparse.Namespace, link: twinlink.Link) -> None:
    """Whether the link takes messages of ``--size``.  Raises ConfigurationError."""
    if given.size > link.max_payload:
        raise ConfigurationError(f"--size {given.size}: this link takes at most {link.max_payload} octets")


def endpoint(given: argparse.Namespace) -> str:
    """Where the two sides meet, for messages to a person."""
    side = f"listening at {given.listen}" if given.listen else f"connecting to {given.connect}"
    return f"{given.transport}, {side}"


def wait_for_peer(link: twinlink.Link, stop: Stop, given: argparse.Namespace, name: str, other: str) -> None:
    """Wait up to ``--timeout`` for a peer; returns without one when the end is asked for.

    Raises PeerTimeout.  ``name`` is this command, ``other`` the one that should run at the other side.
    """
    timeout = given.timeout
    log(name, f"{endpoint(given)}, waits up to {timeout:g} s for a peer")
    end = time.monotonic() + timeout
    while not (stop.requested or link.peers() or link.closed) and (left := end - time.monotonic()) > 0:
        link._wait(lambda: bool(link.peers()), min(LOOK_S, left))
    if not (stop.requested or link.peers()):
        seen = given.connect and connection_problems(given.connect)
        tcp = f"; TCP says: {seen}" if seen else ""
        raise PeerTimeout(f"{link._no_peer_error(timeout)} (does `{other}` run there?){tcp}")


def connection_problems(connect: str) -> str | None:
    """As `connection_problem`, of each endpoint that ``--connect`` names; None when one of them can be connected to."""
    problems = {one: connection_problem(one) for one in connect.split(",")}
    if not all(problems.values()):
        return None
    return problems.get(connect) or "; ".join(f"{one}: {problem}" for one, problem in problems.items())


def connection_problem(connect: str) -> str | None:
    """Why no TCP connection to an endpoint can be made, in the system's words; None when one can."""
    target = Endpoint.parse(connect)
    problem = None
    try:
        for address in addresses(target.host, CONNECT_S)[:ADDRESSES]:
            try:
                socket.create_connection((address, target.port), timeout=CONNECT_S).close()
            except OSError as error:
                problem = problem or error.strerror or str(error)
            else:
                return None
    except OSError as error:
        problem = error.strerror or str(error)
    return problem


class Watch:
    """Events of a link, collected on its I/O thread and told on the command's own."""

    def __init__(self, name: str, link: twinlink.Link) -> None:
        self.missing = 0  # messages that others sent and that did not arrive
        self._name = name
        self._nodes: dict[int, str] = {}
        self._events: SimpleQueue[Event] = SimpleQueue()
        link.events(handler=self._events.put)

    def node(self, epoch: int) -> str | None:
        """The name of a session's node, if it said hello."""
        return self._nodes.get(epoch)

    def tell(self) -> None:
        """Log what happened since the last call."""
        while not self._events.empty():
            event = self._events.get()
            self._take(event)
            text = _text(event)
            if text:
                log(self._name, text)

    def _take(self, event: Event) -> None:
        if isinstance(event, PeerUp):
            self._nodes[event.epoch] = event.node
        elif isinstance(event, Gap):
            self.missing += event.end - event.first
        elif isinstance(event, Reordered):
            self.missing -= 1


def _text(event: Event) -> str | None:
    match event:
        case PeerUp(node=node):
            return f"peer {node} is up"
        case PeerDown(node=node, reason=reason):
            return f"peer {node} is gone ({reason})"
        case Gap(flow=flow, first=first, end=end):
            return f"{end - first} messages of flow {flow} did not arrive: {first} to {end - 1}"
        case Unclaimed(flow=flow, first=first, end=end):
            return f"refused {end - first} messages of flow {flow}, which nobody here asked for: {first} to {end - 1}"
        case Malformed(reason=reason, count=number):
            return f"dropped what is no message of twinlink ({reason}; {number} so far)"
        case HandlerError(flow=flow, error=error):
            return f"a handler of flow {flow} failed: {error}"
    return None  # counted in stats(); nothing that a person has to act on
