"""Opens links, and knows those that are open."""

import os
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, cast

from . import options as link_options
from .link import Link
from .process import exit_hooks
from .protocol.frames import MAX_PAYLOAD
from .protocol.limits import MAX_FLOWS, MAX_PEERS, RECEIVE_BUFFER, Limits
from .transport_options import TransportName, TransportOptions

if TYPE_CHECKING:
    from .aio import Opening

P = ParamSpec("P")
T = TypeVar("T")
_attach: ContextVar[Callable[[Link], object]] = ContextVar("attach", default=lambda link: None)


def open(
    transport: TransportName,
    *,
    listen: str | None = None,
    connect: str | Sequence[str] | None = None,
    node: str | None = None,
    identity: str | os.PathLike[str] | None = None,
    window: int = link_options.WINDOW,
    retention: int = link_options.RETENTION,
    send_timeout: float = 0.05,
    max_payload: int = MAX_PAYLOAD,
    receive_buffer: int = RECEIVE_BUFFER,
    max_flows: int = MAX_FLOWS,
    max_peers: int = MAX_PEERS,
    busy_poll: bool = link_options.BUSY_POLL,
    **options: Unpack[TransportOptions],
) -> Link:
    """Open one end of a link; the other end may come now, later, or again.

    Args:
        transport: ``"zeromq"``, ``"zenoh"``, ``"mqtt"``, ``"websocket"``, ``"tcp"``, ``"memory"``, or that of an
            installed third-party transport.
        listen: endpoint to listen on, ``tcp/host:port``, or ``host:port`` or ``host`` with port 7447, or
        connect: endpoint to connect to; exactly one of the two.  ``zenoh`` in ``mode="client"`` takes a list of routers
            and connects to the first that answers.
        node: name of this node as its peers see it; made of host name, process id and the session when not given.
        identity: folder of this node's identity, made by ``twinlink key new``.  The link is encrypted, meets only peers
            with keys that are trusted there, and never falls back to plain; ``node`` is the name of the identity.
            None: that of the variable ``TWINLINK_IDENTITY``, or none unless ``TWINLINK_REQUIRE_IDENTITY`` is true;
            ``""``: none.
        window: octets of each flow that may be with the peer and not yet consumed by its application.  Bounds the
            memory of the receiving side; the default holds a burst of 1000 x 100 KB that is not consumed yet.
        retention: octets of each flow that are kept here until they are acknowledged, to be retransmitted if need be.
            Bounds the memory of the sending side, also while a peer is stalled or gone.
        send_timeout: seconds that ``send`` waits for room when so much is kept.
        max_payload: octets, at most 16 MiB, of what this side sends and takes; what is longer than a peer takes is lost
            to that peer, and refused where no peer takes it.
        receive_buffer: octets of messages, of all flows and peers, that may wait here for the application; of these a
            peer gets half at most, and ``window`` on each flow.  What there is no room for is requested again later.
        max_flows: that peers may name, and are held; a peer names 1024 at most.  Messages of others are rejected.
        max_peers: that are heard; hellos of more are refused.
        busy_poll: whether a thread that waits for a message may poll for up to 0.3 ms before it sleeps.  It does so
            only while trials find that answers come sooner by it, and never under a CPU limit of the control group.
        options: of the transport; see its ``Options`` class.

    Raises:
        ConfigurationError: an argument or option cannot be used.
        TransportMissing: the transport's driver is not installed.
        TransportError: the transport refused, for example a port in use.
    """
    limited = {
        "window": window,
        "max_payload": max_payload,
        "receive_buffer": receive_buffer,
        "max_flows": max_flows,
        "max_peers": max_peers,
    }
    rest: dict[str, Any] = {"retention": retention, "send_timeout": send_timeout, "busy_poll": busy_poll}
    prepared = link_options.make_transport(
        transport,
        listen=listen,
        connect=connect,
        node=node,
        identity=identity,
        options={**limited, **rest, **options},
    )
    link_options.warn_if_open(prepared, transport)
    node = prepared.identity.name if prepared.identity is not None else node
    limits = Limits(max_frame=prepared.max_frame, **limited)
    return Link(prepared, name=transport, node=node, limits=limits, attach=_attach.get(), **rest)


def _takes_arguments_of(_: Callable[P, Link]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    return lambda function: cast(Callable[P, T], function)


def open_attached(attach: Callable[[Link], object], open_link: Callable[[], T]) -> T:
    """``open_link()``, which calls `open`: the link is given to ``attach`` before it sends or receives anything.

    A recorder that is attached there misses nothing, however slow the machine is between two statements.
    """
    token = _attach.set(attach)
    try:
        return open_link()
    finally:
        _attach.reset(token)


@_takes_arguments_of(open)
def open_async(*args: Any, **kwargs: Any) -> "Opening":
    """Open a link for an asyncio program: ``async with twinlink.open_async(...) as link:``.

    In a notebook ``link = await twinlink.open_async(...)`` keeps it open from cell to cell, until
    ``await link.close()``.  Takes the arguments of `open`, and raises its errors where it is awaited or entered.  The
    link's methods are those of `twinlink.aio.AsyncLink`.
    """
    from .aio import Opening  # other programs do without asyncio

    return Opening(partial(open, *args, **kwargs))


def open_links() -> list[Link]:
    """The links of this process that have not been closed, in the order in which they were opened.

    For a program that has lost the name of a link, such as a notebook: ``twinlink.open_links()[0].close()``.
    """
    return [link for link in exit_hooks.open_links() if isinstance(link, Link)]
