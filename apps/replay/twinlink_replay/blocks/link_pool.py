"""Links shared between GNU Radio blocks: blocks with the same transport, endpoint, node and identity use one.

A source and a sink in one flowgraph have the same peer, and only one socket can listen on a port.
"""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import twinlink
from twinlink.appkit import linking
from twinlink.transport_options import TransportName


@dataclass(frozen=True, slots=True)
class Address:
    """The arguments of `twinlink.open`; exactly one of ``listen`` and ``connect`` is not None."""

    transport: TransportName
    listen: str | None
    connect: str | None
    node: str | None
    identity: str | None = None


@dataclass(slots=True)
class _Shared:
    link: twinlink.Link
    leases: list["Lease"] = field(default_factory=list)

    def dispatch(self, event: twinlink.Event) -> None:
        for lease in list(self.leases):
            lease.on_event(event)


class Lease:
    """A block's reference to a shared link.

    Args:
        address: of the link, which is opened or joined.  Raises what `twinlink.open` raises.
        on_event: called for each event of the link, on the receive thread.
        warn: called once with a message if no peer is up after 5 s.
        given: an open link to use instead; its owner closes it and receives its events.

    Attributes:
        link: open until every lease is released.
    """

    def __init__(
        self,
        address: Address,
        on_event: Callable[[twinlink.Event], None],
        warn: Callable[[str], object],
        given: twinlink.Link | None = None,
    ) -> None:
        self._address = address
        self.on_event = on_event
        self._reads: str | None = None
        if given is not None:
            self.link = given
            return
        with _lock:
            shared = _links.get(address)
            fresh = shared is None
            if shared is None:
                link = twinlink.open(
                    address.transport,
                    listen=address.listen,
                    connect=address.connect,
                    node=address.node,
                    identity=address.identity,
                )
                shared = _links[address] = _Shared(link)
            self.link = shared.link
            shared.leases.append(self)
        if fresh:
            self.link.events(handler=shared.dispatch)
            linking.tell_if_no_peer(self.link, warn)

    def read(self, flow: str, handler: Callable[[twinlink.Message], None]) -> None:
        """Register the handler of a flow's messages.

        Raises ConfigurationError when another block reads the flow: a link delivers each message to one reader.
        """
        with _lock:
            shared = _links.get(self._address)
            leases = shared.leases if shared is not None and self in shared.leases else ()
            if any(lease._reads == flow for lease in leases):
                raise twinlink.ConfigurationError(
                    f"another block of this process reads flow {flow!r} of {self.link.endpoint} already: connect both "
                    "to one source, or give this one another node name, and an endpoint of its own if it listens"
                )
            self._reads = flow
        self.link.receiver(flow, handler=handler)

    def release(self) -> None:
        """Release the reference; the last release closes the link, unless it was given.  Idempotent."""
        with _lock:
            shared = _links.get(self._address)
            if shared is None or self not in shared.leases:
                return
            shared.leases.remove(self)
            if shared.leases:
                return
            del _links[self._address]
            with contextlib.suppress(twinlink.TwinlinkError):
                shared.link.close()


_lock = threading.Lock()
_links: dict[Address, _Shared] = {}
