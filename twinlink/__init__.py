"""twinlink keeps an O-RAN network and its digital twin in sync.

with twinlink.open("zeromq", connect="tcp/10.0.0.5:7447", node="gnb-1") as link:
    link.wait_ready(timeout=5)
    spectrum = link.sender("spectrum")
    spectrum.send(samples)
    spectrum.flush(timeout=1)
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import (
    AckTimeout,
    AuthenticationError,
    ConfigurationError,
    LinkClosed,
    MalformedPayload,
    PayloadTooLarge,
    PeerTimeout,
    SendTimeout,
    StateFull,
    TransportError,
    TransportMissing,
    TwinlinkError,
)
from .events import (
    Duplicate,
    Event,
    Gap,
    HandlerError,
    InternalError,
    LimitExceeded,
    Lost,
    Malformed,
    PeerCaughtUp,
    PeerDown,
    PeerSlow,
    PeerUp,
    Refused,
    Reordered,
    Restarted,
    Stale,
    SyncChanged,
    Unclaimed,
)

if TYPE_CHECKING:
    from .batch import Batch
    from .link import Link
    from .message import Ack, Message
    from .opening import open, open_async, open_links
    from .runtime.receiver import EventStream, Receiver
    from .runtime.sender import Sender
    from .state import Change, Item, State, Value
    from .sync import Sync

__version__ = "0.1.0"

__all__ = [
    "Ack",
    "AckTimeout",
    "AuthenticationError",
    "Batch",
    "Change",
    "ConfigurationError",
    "Duplicate",
    "Event",
    "EventStream",
    "Gap",
    "HandlerError",
    "InternalError",
    "Item",
    "LimitExceeded",
    "Link",
    "LinkClosed",
    "Lost",
    "Malformed",
    "MalformedPayload",
    "Message",
    "PayloadTooLarge",
    "PeerCaughtUp",
    "PeerDown",
    "PeerSlow",
    "PeerTimeout",
    "PeerUp",
    "Receiver",
    "Refused",
    "Reordered",
    "Restarted",
    "SendTimeout",
    "Sender",
    "Stale",
    "State",
    "StateFull",
    "Sync",
    "SyncChanged",
    "TransportError",
    "TransportMissing",
    "TwinlinkError",
    "Unclaimed",
    "Value",
    "events",
    "open",
    "open_async",
    "open_links",
]

# Where the public names are that a program may do without, as one that only decodes payloads does: imported when they
# are first asked for, since the link and its protocol take ten times as long to load as the rest.
_LATER = {
    "Ack": "message",
    "Batch": "batch",
    "Change": "state",
    "EventStream": "runtime.receiver",
    "Item": "state",
    "Link": "link",
    "Message": "message",
    "Receiver": "runtime.receiver",
    "Sender": "runtime.sender",
    "State": "state",
    "Sync": "sync",
    "Value": "state",
    "open": "opening",
    "open_async": "opening",
    "open_links": "opening",
}
_MODULES = {"link", "message", "sync", "transports"}  # that a program may name without importing them


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A public name on first use; otherwise say how a link is opened, to users of other libraries."""
        if name in _LATER:
            found = globals()[name] = getattr(import_module(f".{_LATER[name]}", __name__), name)
            return found
        if name in _MODULES:
            return import_module(f".{name}", __name__)
        sides = {"connect": "connect='10.0.0.5'", "listen": "listen='0.0.0.0'", "bind": "listen='0.0.0.0'"}
        advice = f"; write twinlink.open('zeromq', {sides[name]})" if name in sides else ""
        raise AttributeError(
            f"module 'twinlink' has no attribute {name!r}{advice}", name=name, obj=sys.modules[__name__]
        )
