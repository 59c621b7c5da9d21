"""What happens to a link besides messages: loss, order, peers that come and go.

Events are reported through ``link.events()`` and counted in ``link.stats()``.  ``time_ns`` is Unix time on this host.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""

    time_ns: int


@dataclass(frozen=True, slots=True)
class PeerUp(Event):
    """A peer said hello, and said that it hears us: both directions work."""

    node: str
    epoch: int


@dataclass(frozen=True, slots=True)
class PeerDown(Event):
    """A peer is gone: ``closed`` (it said so), ``restarted``, ``silent`` (nothing heard), ``deaf`` (it hears us not) or
    ``untrusted`` (its keys were revoked here, or have expired).

    After ``silent`` and ``deaf`` its session may come up again; what it has not acknowledged is kept for it.
    """

    node: str
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Restarted(Event):
    """A node came back with a new session while the old one still counted as up; its sequences start anew."""

    node: str
    old_epoch: int
    epoch: int


@dataclass(frozen=True, slots=True)
class PeerSlow(Event):
    """A peer has not consumed what was sent on a flow a second ago; it is ``behind`` by so many messages.

    With ``pace="fastest"`` the flow does not wait for it.
    """

    node: str
    epoch: int
    flow: str
    behind: int


@dataclass(frozen=True, slots=True)
class PeerCaughtUp(Event):
    """A peer that was reported as slow has consumed what was sent on the flow."""

    node: str
    epoch: int
    flow: str


@dataclass(frozen=True, slots=True)
class Gap(Event):
    """Messages ``first`` to ``end - 1`` of a flow did not arrive, and will not.

    On a flow with ``reliability="detect"``: did not arrive before a later one did.
    """

    flow: str
    epoch: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Reordered(Event):
    """A message reported in a Gap came after all, late."""

    flow: str
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Duplicate(Event):
    """A message that was delivered before came again; it was not delivered twice."""

    flow: str
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Stale(Event):
    """Messages ``first`` to ``end - 1`` arrived older than the receiver's ``max_age`` and were not delivered."""

    flow: str
    epoch: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class SyncChanged(Event):
    """A flow that ``link.sync`` watches is ``bound``, ``in-sync``, ``stale`` or ``out-of-sync`` (`twinlink.sync`)."""

    flow: str
    state: str
    age_ns: int | None
    completeness: float | None


@dataclass(frozen=True, slots=True)
class Unclaimed(Event):
    """Messages ``first`` to ``end - 1`` were rejected.

    The flow had no subscription here, and no room was left; or they were longer than its receiver's ``max_payload``.
    """

    flow: str
    epoch: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Lost(Event):
    """This side's messages ``first`` to ``end - 1`` will not be acknowledged, or not by all: ``reason`` says why.

    ``peers``: names of those that owed an ack, as far as is known.
    """

    flow: str
    first: int
    end: int
    reason: str
    peers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Malformed(Event):
    """Octets that are not a twinlink message were dropped; at most one event a second for each ``reason``.

    The reason ``transport``: a program that connected to this listener speaks another protocol than its transport.
    The reason ``identity``: a frame that names another peer than the one of its connection, or that the role does
    not let it send.
    ``count`` is the total for this reason since the link was opened.
    """

    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class Refused(Event):
    """A connection to this listener was refused; at most one event a second for each source.

    Attributes:
        identity: the name of the peer where its key is known here, else the fingerprint of its key, or empty.
        address: where it came from: a host, with its port where the transport tells it.
        reason: ``unknown``, ``revoked`` or ``expired``: its key; ``role``: only observers are admitted here; ``key``:
            it expects another key of this side; ``mechanism``: one side has an identity, and the other has not.
    """

    identity: str
    address: str
    reason: str


@dataclass(frozen=True, slots=True)
class LimitExceeded(Event):
    """Something of a peer was refused here for a ``limit``; at most one event a second for each.

    - ``window``: a message for which the flow or the receive buffer has no room.  It is requested again if its sender
      repairs.
    - ``max_payload``: a message that is longer.  It is a gap, or was rejected where its flow alone takes less.
    - ``flows``: a message of a flow that cannot be held.  It was rejected.
    - ``peers``: the hello of one more peer, or of one that names too many flows.
    - ``sequence``: a message whose number is far beyond all before it.
    - ``ranges``: an announcement of lost messages of which too many ranges are missing already.
    - an option of the transport, such as ``subscription_octets``: a connection that was ended.

    ``count`` is the total since the link was opened.
    """

    limit: str
    count: int


@dataclass(frozen=True, slots=True)
class HandlerError(Event):
    """A handler raised; delivery went on."""

    flow: str
    error: str


@dataclass(frozen=True, slots=True)
class InternalError(Event):
    """A thread or callback of twinlink itself raised; at most one event a second for each.

    A thread that serves the link goes on; one that does a single task has ended, and the next task starts another.
    Those that belong to no link, such as name resolution or a GNU Radio block, are reported by every open link.

    Attributes:
        where: the thread or callback.
        error: what it raised.
        count: how many exceptions there were by then: of this link, or of those that belong to none.
    """

    where: str
    error: str
    count: int
