"""Links of GNU Radio blocks: those with the same transport, endpoint and node share one.

A source and a sink in one flowgraph talk to the same peer, and a port can be listened on only once.
"""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import twinlink
from twinlink.appkit import linking
from twinlink.appkit.console import log


@dataclass(frozen=True, slots=True)
class Address:
    """Where a block finds its peer; the arguments of `twinlink.open`.  Exactly one of listen and connect is given."""

    transport: str
    listen: str | None
    connect: str | None
    node: str | None


@dataclass(slots=True)
class _Shared:
    link: twinlink.Link
    leases: list["Lease"] = field(default_factory=list)

    def tell(self, event: twinlink.Event) -> None:
        for lease in list(self.leases):
            lease.on_event(event)


class Lease:
    """A block's share in a link.

    Attributes:
        link: open until every lease is released.
        on_event: called for each of the link's events, on the thread that receives.
    """

    def __init__(
        self, address: Address, on_event: Callable[[twinlink.Event], None], given: twinlink.Link | None = None
    ) -> None:
        """Open the link, or join it.  Raises what `twinlink.open` raises.

        A link that is ``given`` takes the place of all that: it is its owner's, who closes it and has its events.
        """
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
                    address.transport, listen=address.listen, connect=address.connect, node=address.node
                )
                shared = _links[address] = _Shared(link)
            self.link = shared.link
            shared.leases.append(self)
        if fresh:
            self.link.events(handler=shared.tell)
            linking.tell_if_no_peer(self.link, partial(log, "Twinlink"))

    def read(self, flow: str, handler: Callable[[twinlink.Message], None]) -> None:
        """Take a flow's messages.

        Raises ConfigurationError when another block takes them: a link hands each message to one reader.
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
        """Give the share back; the last one closes the link, unless it was given.  A second call does nothing."""
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
