"""The sending end of a flow, as an application holds it."""

import re
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import AckTimeout, ConfigurationError, LinkClosed, PayloadTooLarge, SendTimeout
from ..message import Ack
from ..options import Priority
from ..protocol import rtt
from ..protocol.frames import DATA_WORD, HEADER, MAX_PAYLOAD, Kind, Records, again, gone_body
from ..protocol.frames import frame as make_frame
from ..protocol.rangeset import RangeSet
from ..protocol.send.flow import Outgoing, Overflow
from ..transports import Transport

if TYPE_CHECKING:
    from ..link import Link


WAKE_UP_S = 0.015  # a thread whose time is over may wait so long for three others that hold the interpreter, 5 ms each
LOOK_MESSAGES = 8  # in bulk, a thread that sends looks every so many whether they make up a bundle

_monotonic_ns, _time_ns, _pack = time.monotonic_ns, time.time_ns, HEADER.pack

Payload = Any  # anything with the buffer protocol: bytes, bytearray, memoryview, C-contiguous ndarray

_FIELD_NAME = re.compile(":[^:]*:")  # in the format of a structured array


class Sender:
    """Made by ``link.sender(flow)``.  Several threads may send; each message gets its own number.

    Attributes:
        flow: name of the flow.
        priority: ``high`` or ``normal``.
        on_ack: called with each `Ack`, or None.
        max_payload: octets of the longest payload that this link sends and every peer takes that is up or may return.
        transit: what of the flow is on its way; for the link's keeper, which divides among the flows.
        losses: what of it is lost; for the company, which reports.
    """

    def __init__(self, link: "Link", transport: Transport, core: Outgoing, priority: Priority) -> None:
        self.flow = core.flow
        self.priority = priority
        self.on_ack: Callable[[Ack], None] | None = None
        self.max_payload = link.max_payload
        self._link = link
        self._transport = transport
        self._join = transport.join
        self._core = core
        self._backlog = core.backlog
        self.transit = core.transit
        self.losses = core.losses
        self._topic = f"traffic/{core.flow}".encode()
        self._next_at_look = 0  # number of the next message, when the keeper last looked
        self._next_at_visit = 0  # and when the courier last came
        self.on_ack_turn = 0  # on_ack is called, or is going to be, with so many acks at most, ...
        self.on_ack_told = 0  # ... and has been with so many; flush waits for it too
        self._order = threading.Lock()  # numbers go out in order
        self._state = threading.Lock()  # the core, against the threads that take in acks and hand over the backlog
        self._handing = threading.RLock()  # the backlog goes out in order

    def send(self, payload: Payload) -> int:
        """Send one message to every peer; returns its sequence number.  The payload may be changed afterwards.

        The message is kept until every peer has acknowledged it; with ``reliability="repair"`` also for peers that
        have fallen silent and may return.  When the link keeps ``retention`` octets of this flow, the flow's
        ``overflow`` policy decides: ``block`` waits for room, at most the link's ``send_timeout``.  Peers that are
        down hold nobody up: for them the oldest messages give up their place, and are reported as lost.  Without any
        peer the message is counted as lost; `flush` names it.

        Raises:
            PayloadTooLarge: longer than the ``max_payload`` of the link, or of a peer that is up or may return.
            SendTimeout: no room: some peer takes nothing, or less than is sent.  The message was not sent.
            LinkClosed: the link was closed.
            TransportError: the transport failed.  The message has its number and is kept: do not send it again.
            TypeError, ConfigurationError: not bytes-like, or not C-contiguous.
        """
        link = self._link
        if type(payload) is not bytes:
            payload = octets(payload)
        size = len(payload)
        if size > self.max_payload:
            raise self._too_large(size)
        core, kept = self._core, self._core.kept
        deadline = None
        while True:
            if size <= kept.room or link.sending_ends or self._fits(size):  # else no frame is made, as long as that is
                with self._order:
                    if link.sending_ends:
                        raise LinkClosed(f"the link to {link.endpoint} {link.why_unusable}")
                    sequence = self._backlog.next
                    now, sent_ns = _monotonic_ns(), _time_ns()  # the round trip begins before the payload is copied
                    frame = self._join(_pack(DATA_WORD, size, link.epoch, sequence, sent_ns), payload)
                    with self._state:
                        waited = self._backlog.waits
                        try:
                            direct = core.send(frame, size, now)
                        except BaseException:
                            core.mend()
                            raise
                    if direct is not None:
                        if direct and core.recipients.all:
                            self._transport.send(self._topic, frame)
                        elif direct:
                            if link.reception.company.alone:  # else it would be ahead of what is owed to a node
                                self._transport.offer(self._topic, frame)
                        elif not waited:
                            link.wake_courier()
                        elif not sequence % LOOK_MESSAGES and self._backlog.bundle_waits(size, now):
                            self._hand_over_bundle()
                        return sequence
            deadline = deadline or time.monotonic() + link.send_timeout - min(link.send_timeout * 0.3, WAKE_UP_S)
            self._wait_for_room(size, deadline)

    def _too_large(self, size: int) -> PayloadTooLarge:
        most = self._link.max_payload
        what = f"a payload of {size} octets on flow {self.flow!r}: this link takes at most {most}"
        less = self._link.reception.company.who_takes_less(min(size, most))
        if less:
            return PayloadTooLarge(f"{what}; {less}: give both sides the same max_payload")
        if most < MAX_PAYLOAD:
            return PayloadTooLarge(f"{what}: open both sides with a greater max_payload, {MAX_PAYLOAD} at most")
        return PayloadTooLarge(f"{what}: send it as several messages")

    def _wait_for_room(self, size: int, deadline: float) -> None:
        link = self._link
        link.wait(lambda: self._fits(size) or link.sending_ends, deadline - time.monotonic())
        if time.monotonic() >= deadline and not self._fits(size) and not link.sending_ends:
            core = self._core
            why = "the peer is stalled or slower than what is sent"
            if core.window.tells_slowly:
                why = "on_ack takes longer than acks take to come, or a handler of this link does not return"
            raise SendTimeout(
                f"flow {self.flow!r} to {', '.join(link.peers()) or 'nobody'} has been full for {link.send_timeout:g} s"
                f" ({core.kept.octets} octets not acknowledged, {core.window.octets} not consumed): {why}; this message"
                " was not sent.  Send less, give send_timeout= more time, or choose another overflow= for the flow"
            )

    def _fits(self, size: int) -> bool:
        with self._state:
            return self._core.fits(size)

    def flush(self, timeout: float = 1.0) -> None:
        """Return when every message sent so far, by whatever thread, has been acknowledged by every peer.

        Raises:
            AckTimeout: some are still outstanding after ``timeout`` seconds, or are lost and no flush has said so
                before; ``missing`` holds their ranges.
            TransportError: the transport failed, perhaps with an ack of ours: who waits is the one that receives.
        """
        core, end = self._core, self._backlog.next
        if self._backlog.waits:
            with self._order:
                self._hand_over_bundle()
        if core.kept.entries or core.doubt.open or self.on_ack_due:
            self._link.wait(partial(self._is_flushed, end), timeout)
        if not core.kept.entries and not core.doubt.open and not core.losses.unflushed:
            return
        with self._state:
            missing = RangeSet(core.missing().take(0, end))
            outstanding, owing = core.outstanding().take(0, end), core.kept.owing()
            core.losses.unflushed.take(0, end)
        if not missing:
            return
        if self._link.closed:
            what = f"not acknowledged, and the link {self._link.why_unusable}"
        elif outstanding:
            what = f"not acknowledged within {timeout:g} s by {self._link.reception.company.names(owing)}"
        else:
            what = "lost; the events say why"
        raise AckTimeout(f"flow {self.flow!r}: sequence {missing} {what}", tuple(missing))

    def _is_flushed(self, end: int) -> bool:
        core = self._core
        if core.kept.entries or core.doubt.open:
            if self._backlog.next == end:  # nobody has sent meanwhile
                return False
            with self._state:
                if not core.is_settled_below(end):
                    return False
        # A handler that flushes does not wait for the calls that are to follow its own.
        return not self.on_ack_due or (self._link.lead.held_here and self._link.reception.calls.running)

    def stats(self) -> dict[str, Any]:
        """Counters and delays of this flow (docs/library.md); times in ns, of the last 2,048 acks of each peer.

        Of messages that shared a frame one in 16 counts, unless there is an ``on_ack``.
        """
        counters, acks = self.snapshot()
        return {**counters, "peers": rtt.stats(acks)}  # to put them in order takes ms, for which nobody has to wait

    def snapshot(self) -> tuple[dict[str, Any], dict[int, list[Ack]]]:
        """The counters, and by peer the acks that `stats` sums up, in the order in which they came."""
        with self._state:
            return self._core.stats(), self._core.delays.acks()

    # For whoever receives

    def acknowledged(
        self, epoch: int, consumed: int, records: Records, t2_ns: int, t3_ns: int, t4_ns: int, t4_mono_ns: int
    ) -> list[Ack]:
        """Take in an ack; returns what to give to ``on_ack``.

        Its ``records`` are (sequence, T1, T2), or sequences in a row: their T2 is ``t2_ns``.
        """
        core, told = self._core, self.on_ack is not None
        with self._state:
            if told:  # before anything is acknowledged, or a flush would not wait for it
                self.on_ack_turn += len(records)
            try:
                if isinstance(records, range):
                    acks = core.acknowledge_row(epoch, records, t2_ns, t3_ns, t4_ns, t4_mono_ns, told)
                else:
                    acks = core.acknowledge(epoch, records, t3_ns, t4_ns, t4_mono_ns)
                core.consume(epoch, consumed)
            except BaseException:
                core.mend()
                raise
        if self._backlog.waits and self._backlog.may_go:
            self._link.wake_courier()
        return acks

    def asked(
        self, epoch: int, known: int, missing: list[tuple[int, int]], t3_ns: int, t4_ns: int, t4_mono_ns: int
    ) -> list[Ack]:
        """Take in what a peer misses; returns what to give to ``on_ack``."""
        core = self._core
        with self._state:
            self.on_ack_turn += self.on_ack is not None  # as above
            try:
                acks = core.asked(epoch, known, missing, t3_ns, t4_ns, t4_mono_ns)
            except BaseException:
                core.mend()
                raise
            if self.on_ack is not None:
                self.on_ack_turn += len(acks)
        if self._backlog.may_go:
            self._link.wake_courier()
        return acks

    def progressed(self, epoch: int, sent_ns: int, octets: int) -> None:
        """Take in how many octets a peer has of a frame that leaves in parts."""
        with self._state:
            self._backlog.progress(epoch, sent_ns, octets)
        if self._backlog.may_go:
            self._link.wake_courier()

    @property
    def on_ack_due(self) -> bool:
        """Whether on_ack has not yet been called with all acks so far."""
        return self.on_ack_told < self.on_ack_turn

    def on_ack_later(self) -> None:
        """On_ack has not been called with all acks so far, and others may come before it is."""
        self._core.window.untold = self.on_ack_turn - self.on_ack_told

    def on_ack_done(self, turn: int) -> None:
        """On_ack has been called with all acks up to this turn."""
        window = self._core.window
        slow = window.tells_slowly
        self.on_ack_told = max(self.on_ack_told, turn)
        window.untold = self.on_ack_turn - self.on_ack_told
        if slow and not window.tells_slowly and self._backlog.waits:
            self._link.wake_courier()

    # For the courier

    def hand_over(self, stops: Callable[[], bool]) -> bool:
        """Give the backlog to the transport, as far as the limits allow, and until ``stops()``.

        Returns True where messages come in bulk just now: the thread that sends them hands them over, a bundle at a
        time; the courier is to come again soon for what is left when no more come.
        """
        while self._backlog.waits and not stops():
            theirs = not self.transit.budget.clogged  # whoever sends hands over nothing then
            if theirs and self._backlog.next != self._next_at_visit and self._backlog.in_bulk(_monotonic_ns()):
                self._next_at_visit = self._backlog.next
                return True
            with self._handing:
                if not self._hand_over_some(patient=True):
                    break
        return False

    def _hand_over_bundle(self) -> None:
        """For who holds `_order`; does nothing while the courier is handing over: that will do."""
        if self._core.recipients.bundles:
            try:
                if self._handing.acquire(False):
                    self._hand_over_some(patient=False)
            finally:  # Ctrl-C comes between any two calls, so there is none before release, which knows the owner
                try:  # noqa: SIM105
                    self._handing.release()
                except RuntimeError:
                    pass

    def _hand_over_some(self, patient: bool) -> bool:
        """Hand over what `Backlog.take` gives, once; whether it gave anything.  For who holds `_handing`."""
        with self._state:
            try:
                taken = self._backlog.take(patient)
            except BaseException:
                self._core.mend()
                raise
        if taken is None:
            return False
        if patient and taken[0] is Kind.GONE:
            # It is to be behind all that was sent: who sends past the backlog gets through first, and none begins.
            with self._order:
                pass
        frame = self._as_frame(*taken)
        if self.transit.budget.clogged:  # the others get it, and whoever fell silent asks for it, should it return
            self._transport.offer(self._topic, frame)
        else:
            self._transport.send(self._topic, frame)
        return True

    def _as_frame(self, kind: Kind, what: Any) -> bytes:
        """What `Backlog.take` gave, as one frame."""
        if kind is Kind.PART:
            part: bytes = what
            return part
        if kind is Kind.GONE:
            return make_frame(kind, self._link.epoch, self._backlog.unsent, _time_ns(), gone_body(*what))
        frames: list[bytes] = [again(frame) for frame in what] if kind is Kind.AGAIN else what
        if len(frames) == 1:
            return frames[0]
        added = self._transport.added_octets
        body = b"".join([frame[:-added] for frame in frames] if added and kind is Kind.DATA else frames)
        return make_frame(Kind.BUNDLE, self._link.epoch, 0, _time_ns(), body)

    # For the keeper

    @property
    def in_use(self) -> bool:
        """Whether something is on its way, or was sent since `look_after` was last called."""
        return bool(self.transit) or self._backlog.next != self._next_at_look

    @property
    def waits(self) -> bool:
        """Whether messages or announcements of this flow wait to be handed over."""
        return self._backlog.waits

    def path_ns(self, calm: bool) -> int:
        """The round trip as this flow sees it, 0 without acks; ``calm``: nothing of any flow waits."""
        with self._state:
            return self._core.delays.path_ns(self._core.recipients.up, calm)

    def look_after(self) -> None:
        """To be called with every hello: when acks do not come, ask the peers what they miss."""
        core = self._core
        with self._state:
            core.look()
            self._next_at_look = self._backlog.next
        if self._backlog.waits:
            self._link.wake_courier()

    # For the company

    def ask(self) -> None:
        """Ask the peers what they miss, if any owes an ack."""
        with self._state:
            self._core.ask()
        if self._backlog.waits:
            self._link.wake_courier()

    @property
    def next_to_leave(self) -> int:
        """The first number that has not been handed to the transport."""
        return self._backlog.unsent

    def joined(self, epoch: int) -> int | None:
        """The first number that was owed to a peer when it came up; None if it has not."""
        return self._core.recipients.since.get(epoch)

    @property
    def reliability(self) -> str:
        """``repair`` or ``detect``."""
        return "repair" if self._core.repair else "detect"

    @property
    def overflow(self) -> Overflow:
        """What happens when the flow is full."""
        return self._core.overflow

    def peer_up(self, epoch: int, repairs: bool, max_payload: int = MAX_PAYLOAD) -> None:
        """A peer came, or came back; ``repairs``: it asks for what it misses; ``max_payload``: what it takes."""
        with self._state:
            self._core.peer_up(epoch, repairs, max_payload)
        if self._backlog.waits:
            self._link.wake_courier()

    def peer_down(self, epoch: int, reason: str, may_return: bool, successor: int | None) -> None:
        """A peer went; ``may_return``: for it messages are kept; ``successor``: the session that takes its place."""
        with self._state:
            self._core.peer_down(epoch, reason, may_return, successor)

    def forget(self, epoch: int, reason: str, successor: int | None) -> None:
        """A peer that had fallen silent will not come back."""
        with self._state:
            self._core.forget(epoch, reason, successor)

    def take_losses(self, most: int) -> list[tuple[int, int, str]]:
        """At most so many ranges of what was lost since the last call, and why."""
        with self._state:
            return self._core.losses.report(most)

    # For the end of the link

    @property
    def settled(self) -> bool:
        """Whether nothing is outstanding that could still be acknowledged without anybody returning."""
        with self._state:
            return not self._core.kept.is_owed_by(self._core.recipients.up)

    def say_what_is_gone(self) -> None:
        """Tell the peers what they will not get any more.  Never waits.  Raises TransportError."""
        with self._state:
            announcements = self._core.last_announcements()
        transport = self._transport
        say = transport.offer if transport.gives_up_ns else transport.send  # what may make us wait is not waited for
        for announcement in announcements:
            say(self._topic, self._as_frame(Kind.GONE, announcement))

    def let_send_end(self, patience_s: float) -> None:
        """Return when no thread is in the transport on behalf of this flow; none will enter it any more."""
        if self._order.acquire(timeout=max(0.0, patience_s)):
            self._order.release()

    def abandon(self) -> None:
        """This is a forked process's copy: whoever held a lock stayed with the parent, and nothing may leave here."""
        self._order, self._state, self._handing = threading.Lock(), threading.Lock(), threading.RLock()
        self._core.end()

    def end(self) -> tuple[str, str, RangeSet]:
        """Keep no message any more; for the log: the flow, by whom, and what is outstanding, or lost and not named yet.

        Nobody gets it any more, so its frames go now: a link refers to itself, and Python's garbage collection may
        take long to find a closed one.
        """
        with self._state:
            owing = self._core.kept.owing()
            self._core.end()
            missing = self._core.missing()
        # By whom: what a session that died still owes, another peer may have acknowledged long ago.
        by = f" by {self._link.reception.company.names(owing)}" if owing else ""
        return self.flow, by, missing


def octets(payload: Payload) -> memoryview:
    """The payload's own memory, not a copy.  Raises TypeError, ConfigurationError."""
    try:
        view = memoryview(payload)
    except (TypeError, ValueError) as error:
        raise TypeError(f"the payload must be bytes-like, not {type(payload).__name__}: {error}") from None
    if "O" in view.format and "O" in _FIELD_NAME.sub("", view.format):
        raise TypeError("the payload is an array of Python objects; their octets mean nothing to a peer")
    if not view.c_contiguous:
        raise ConfigurationError("the payload is not C-contiguous; send numpy.ascontiguousarray(payload)")
    return view.cast("B") if view.nbytes else memoryview(b"")
