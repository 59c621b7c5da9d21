"""Those at the other end: greets them, notes who comes, goes and may return, and tells the senders."""

import logging
import threading
import time
from collections.abc import Callable

from .. import events as ev
from ..events import Event
from ..options import Priority
from ..process.signals import undisturbed
from ..protocol.frames import HEADER, HEADER_OCTETS, HELLO_TOPIC, MAX_SEQUENCE, Hello, Kind, Malformed
from ..protocol.frames import frame as make_frame
from ..protocol.liveness import BEHIND_NS, Change, Peer, PeerTable
from ..protocol.reconnect import Answer, Patience
from ..protocol.send.congestion import LEAST_OCTETS, Budget
from ..transports import Transport
from ..transports.base import Frame
from .sender import Sender

AWAY_NS = 600_000_000  # time is kept ten times a second and more; after such a pause this side was away, not the others
ABSENT_NS = 120_000_000_000  # a session that has been silent for so long will not come back
MAY_RETURN = frozenset({"silent", "deaf"})  # reasons for which a session is down and may come up again
MAX_MET = 2048
NAMESAKES_NS = 3_000_000_000  # a session that is heard for so long beside its successor has not been restarted
MUTE_NS = 1_000_000_000  # twinlink says it as soon as it is up, which is a round trip after it has heard us, ...
MUTE_HELLOS = 5  # ... and where we stood still, some that were sent before are read first
LOSSES_AT_ONCE = 1000  # events; whoever handles them gets his turn in between
MAX_SINCE = 512  # numbers in one hello that say from where on somebody is owed something: it has room for so many

_monotonic_ns, _time_ns = time.monotonic_ns, time.time_ns

logger = logging.getLogger("twinlink")


class Company:
    """Peers and senders of one link.  For the thread that leads, except `add_sender`, `say` and what is for people.

    Attributes:
        peers: who is heard, and who is up.
        up: epochs of the peers that are up; replaced, never changed, when every sender knows of it.
        senders: by flow.
        budgets: by priority, what its flows may have on their way.
        urgent: whether there is something, ours or theirs, that bulk is not to hold up.
    """

    def __init__(
        self,
        transport: Transport,
        node: str,
        epoch: int,
        max_payload: int,
        report: Callable[[Event], None],
        give_up: Callable[[int, int | None], None],
    ) -> None:
        """``give_up(epoch, successor)`` is called when a session will not come back."""
        self.peers = PeerTable(epoch, _monotonic_ns())
        self.up: frozenset[int] = frozenset()
        self.senders: dict[str, Sender] = {}
        self.budgets: dict[Priority, Budget] = {"high": Budget(LEAST_OCTETS), "normal": Budget(LEAST_OCTETS)}
        self.urgent = False
        self._transport = transport
        self._node = node
        self._epoch = epoch
        self._max_payload = max_payload
        self._report = report
        self._give_up = give_up
        self._lock = threading.Lock()  # who is up, and the senders who must know
        self._say_lock = threading.Lock()
        self._kept_mono_ns = 0
        self._emptied_mono_ns = _monotonic_ns()
        self._patience = Patience(_monotonic_ns())
        self._absent: dict[int, tuple[int, Peer]] = {}  # epochs that fell silent -> monotonic ns, as it was then
        self._met: dict[int, Peer] = {}  # by epoch, as they were when they were first heard
        self._replaced: dict[int, int] = {}  # epochs whose node has begun a newer session -> monotonic ns then
        self._namesakes: dict[str, int] = {}  # node names under which two were up -> monotonic ns
        self._told_of: set[str] = set()  # of them, those of which a person has been told, ...
        self._to_tell: list[str] = []  # ... or is to be

    def add_sender(self, sender: Sender) -> None:
        """Tell this sender who is up, and who was and may return, now and from now on."""
        with self._lock:
            for epoch, (_, away) in list(self._absent.items()):
                if epoch not in self.up:
                    sender.peer_up(epoch, away.repairs, away.max_payload)
                    sender.peer_down(epoch, f"peer {away.node} is down", True, None)
            for epoch in self.up:
                if (peer := self.peers.get(epoch)) is not None:
                    sender.peer_up(epoch, peer.repairs, peer.max_payload)
            sender.max_payload = self._taken_by_all()
            self.senders[sender.flow] = sender
            self.urgent |= sender.priority == "high"

    @property
    def alone(self) -> bool:
        """Whether no node is heard, nor has fallen silent and may return: only others may hear what is sent."""
        return not self._absent and not self.peers.heard

    def joined_at(self, epoch: int, flow: str) -> int:
        """The first number of a peer's flow that it owes us; the next to leave when it was first heard, at least."""
        return self._met[epoch].flows.get(flow, 0) if epoch in self._met else 0

    def placed(self, epoch: int) -> bool:
        """Whether a peer has said what it owes us."""
        return epoch in self._met and self._met[epoch].placed

    def place(self, epoch: int, hello: Hello, mono_ns: int) -> bool:
        """Whether a peer says, for the first time, what it owes us from where on; or hears us, and will not say it."""
        met = self._met.get(epoch)
        if met is None or met.placed:
            return False
        since = hello.since.get(self._epoch)
        if since is None:
            if self._epoch in hello.heard:
                met.mute += 1
                met.mute_mono_ns = met.mute_mono_ns or mono_ns
            if met.mute < MUTE_HELLOS or mono_ns - met.mute_mono_ns < MUTE_NS:
                return False
        met.placed = True
        met.flows.update(since or {})
        return True

    def known(self, epoch: int) -> Peer | None:
        """Whose session this is, also one that has fallen silent: its data may arrive before its next hello."""
        return self.peers.get(epoch) or self._met.get(epoch)

    def greeting(self, kind: Kind, epoch: int, number: int, frame: Frame, mono_ns: int) -> tuple[Hello, bool] | None:
        """Take in a hello or a bye; returns the hello, and whether it is of somebody who was not known.

        Raises Malformed.
        """
        if kind is Kind.BYE:
            self._changed(self.peers.bye(epoch))
            if epoch in self._absent:
                self._forget(epoch, f"peer {self._absent[epoch][1].node} closed")
            return None
        if number > MAX_SEQUENCE:
            raise Malformed("sequence")
        hello = Hello.decode(memoryview(frame)[HEADER_OCTETS:])
        if epoch in self._replaced:  # it waited on the way; or two nodes have one name, and this one's data are stale
            if mono_ns - self._replaced[epoch] > NAMESAKES_NS:
                self._tell_of_namesakes(hello.node)
            return None
        sent_ns = HEADER.unpack_from(frame)[4]
        self._transport.greeted()
        before = self.peers.get(epoch)
        known = before is not None
        joins = not (before and before.up) and self._transport.joins(epoch, self._epoch in hello.heard)
        for absent, (_, peer) in list(self._absent.items()):
            replaced = peer.node == hello.node and absent != epoch and not peer.spoke_after(number, sent_ns)
            if replaced and not (known and self.peers.get(absent)):  # nothing of the old session may follow
                self._forget(absent, f"peer {peer.node} was restarted", epoch)
        answer, changes = self.peers.hello(epoch, number, sent_ns, hello, mono_ns, joins)
        greeted = self.peers.get(epoch)
        if greeted is not None:
            self._met.setdefault(epoch, greeted)
        self._changed(changes)
        if answer:
            self.say(Kind.HELLO)
        if greeted is not None and greeted.interrupted:  # so messages, acks and asks may be lost
            for sender in list(self.senders.values()):
                sender.ask()
        return hello, not known

    def keep_time(self, now_mono_ns: int, emptied_mono_ns: int) -> None:
        """Take out peers that have been silent for too long; report what senders have lost.

        ``emptied_mono_ns`` is when the transport was last found with nothing to read.
        """
        self._look(now_mono_ns, emptied_mono_ns)
        while self._to_tell:
            logger.warning(
                "two nodes are called %s, and one of them will be taken for the other's restart: give each a name of "
                "its own (node=, --node)",
                self._to_tell.pop(),
            )

    def answered(self, answer: Answer) -> bool:
        """The other side's port has answered, and nobody is up; whether the transport was told to connect now."""
        more = self._patience.needs_more(answer.trip_ns)
        if answer.anew or more:
            self._transport.reached(self._patience.begin(_monotonic_ns()))
        return answer.anew or more

    @undisturbed
    def _look(self, now_mono_ns: int, emptied_mono_ns: int) -> None:
        if now_mono_ns - self._kept_mono_ns > AWAY_NS:
            self.peers.excuse(now_mono_ns)
        self._kept_mono_ns, self._emptied_mono_ns = now_mono_ns, emptied_mono_ns
        changes = self.peers.expire(now_mono_ns, emptied_mono_ns)
        self._changed(changes)
        if not self.peers.heard:
            self._transport.parted()
        if changes:
            self.say(Kind.HELLO)  # who cannot be heard is to know it
        for epoch, (since_ns, peer) in list(self._absent.items()):
            if now_mono_ns - since_ns > ABSENT_NS:
                self._forget(epoch, f"peer {peer.node} was silent for {ABSENT_NS // 1_000_000_000} s")
        if (patience := self._patience.look(not self.up, now_mono_ns)) is not None:
            self._transport.renew(patience)
        for node, since_ns in list(self._namesakes.items()):
            if now_mono_ns - since_ns > NAMESAKES_NS:
                del self._namesakes[node]
                if self._are_up(node) > 1:
                    self._tell_of_namesakes(node)
        if len(self._met) > MAX_MET:
            here = {peer.epoch for peer in self.peers.all()} | self._absent.keys()
            self._met = {epoch: peer for epoch, peer in self._met.items() if epoch in here}
        self.report_losses()

    def _changed(self, changes: list[Change]) -> None:
        """Tell the senders, then everybody by events, who came and who went."""
        for change in changes:
            peer, reason = change.peer, change.reason
            if reason is None:
                self._patience.met(peer.trip_ns)
                if self._are_up(peer.node) > 1:
                    self._namesakes.setdefault(peer.node, self._kept_mono_ns)
            elif reason in MAY_RETURN:
                self._absent[peer.epoch] = (self._kept_mono_ns, peer)
                if self._transport.gives_up_ns:
                    for budget in self.budgets.values():
                        budget.clog(self._transport.direct_octets, _monotonic_ns() + self._transport.gives_up_ns)
            else:
                self._lose_track(peer.epoch, change.successor)
            with self._lock:
                taken_by_all = self._taken_by_all()
                for sender in self.senders.values():
                    sender.max_payload = taken_by_all
                    if reason is None:
                        sender.peer_up(peer.epoch, peer.repairs, peer.max_payload)
                    else:
                        told = f"peer {peer.node} went down ({reason})"
                        sender.peer_down(peer.epoch, told, reason in MAY_RETURN, change.successor)
                self.up = self.up | {peer.epoch} if reason is None else self.up - {peer.epoch}
                if reason is None:
                    self._absent.pop(peer.epoch, None)
        for change in changes:
            peer = change.peer
            if change.reason is None:
                self._report(ev.PeerUp(_time_ns(), peer.node, peer.epoch))
            else:
                self._report(ev.PeerDown(_time_ns(), peer.node, peer.epoch, change.reason))
            if change.successor is not None:
                self._report(ev.Restarted(_time_ns(), peer.node, peer.epoch, change.successor))
        if changes:
            self.report_losses()

    def _taken_by_all(self) -> int:
        """Octets of the longest payload that this node sends and that all peers take which are to get what is sent now.

        Those are the peers that are up, and those that may return and ask for what they missed.  A peer would ask for a
        message that it does not take again and again, which would hold up all that follows, for the others too.
        """
        absent = (peer.max_payload for _, peer in list(self._absent.values()) if peer.repairs)
        return min([self._max_payload, *absent, *(peer.max_payload for peer in self.peers.all() if peer.up)])

    def who_takes_less(self, size: int) -> str:
        """Names of those who do not take a payload of so many octets, each with what it takes."""
        up = [(peer.node, peer) for peer in self.peers.all() if peer.up]
        absent = [(f"{peer.node} (down, may return)", peer) for _, peer in list(self._absent.values()) if peer.repairs]
        return ", ".join(
            f"{name} takes at most {peer.max_payload}" for name, peer in up + absent if peer.max_payload < size
        )

    def _forget(self, epoch: int, reason: str, successor: int | None = None) -> None:
        """A session that had fallen silent will not come back: tell the senders, who kept messages for it."""
        del self._absent[epoch]
        self._lose_track(epoch, successor)
        with self._lock:
            for sender in self.senders.values():
                sender.forget(epoch, reason, successor)
                sender.max_payload = self._taken_by_all()

    def _lose_track(self, epoch: int, successor: int | None) -> None:
        """A session will not come back: nothing of it is remembered here."""
        self._met.pop(epoch, None)
        if successor is not None:
            self._replaced[epoch] = self._kept_mono_ns
            if len(self._replaced) > MAX_MET:
                del self._replaced[next(iter(self._replaced))]
        self._give_up(epoch, successor)

    def _are_up(self, node: str) -> int:
        return sum(peer.up and peer.node == node for peer in self.peers.all())

    def _tell_of_namesakes(self, node: str) -> None:
        """Once: who falls silent for a moment counts as replaced by the other, and is passed over from then on."""
        if node not in self._told_of and len(self._told_of) < MAX_MET:
            self._told_of.add(node)
            self._to_tell.append(node)

    def names(self, epochs: frozenset[int]) -> str:
        """Names of these peers, for a person: those that are up, or have fallen silent and may return."""
        names = [peer.node for peer in self.peers.all() if peer.up and peer.epoch in epochs]
        names += [f"{peer.node} (down, may return)" for one, (_, peer) in list(self._absent.items()) if one in epochs]
        return ", ".join(sorted(names)) or "nobody who is left"

    def say(self, kind: Kind) -> None:
        """Send a hello or a bye."""
        body, number = b"", 0
        with self._say_lock:  # an older hello that went out after a newer one would say that we hear less than we do
            if kind is Kind.HELLO:
                senders = list(self.senders.items())
                flows = {flow: sender.next_to_leave for flow, sender in senders}
                detect = frozenset(flow for flow, sender in senders if sender.reliability == "detect")
                heard = {peer.epoch: peer.number for peer in self.peers.all() if not peer.joins}
                number = _monotonic_ns()
                behind = number - self._emptied_mono_ns > BEHIND_NS  # a backlog, or a handler that takes its time
                since = self._since(number, senders)
                body = Hello(self._node, heard, flows, True, detect, behind, self._max_payload, since).encode()
            self._transport.send(HELLO_TOPIC, make_frame(kind, self._epoch, number, _time_ns(), body))

    def _since(self, number: int, senders: list[tuple[str, Sender]]) -> dict[int, dict[str, int]]:
        """What hello ``number`` says to those who have come up and may not know yet from where on they are owed."""
        since: dict[int, dict[str, int]] = {}
        for peer in reversed(self.peers.all()):
            if peer.epoch not in self.up or peer.known >= (peer.told or number):
                continue
            if since and (len(since) + 1) * len(senders) > MAX_SINCE:
                break
            peer.told = peer.told or number
            joined = {flow: sender.joined(peer.epoch) for flow, sender in senders[:MAX_SINCE]}
            since[peer.epoch] = {flow: first for flow, first in joined.items() if first is not None}
        return since

    @undisturbed
    def report_losses(self) -> bool:
        """Report, as events, what the senders have lost since the last time; whether some of it is left for the next.

        That is so where it is in very many ranges.
        """
        left = False
        for sender in list(self.senders.values()):
            if sender.losses.unreported:
                for first, end, reason in sender.take_losses(LOSSES_AT_ONCE):
                    self._report(ev.Lost(_time_ns(), sender.flow, first, end, reason))
                left |= bool(sender.losses.unreported)
        return left
