"""A link: the one place where core, transport, clock and threads meet; what an application holds."""

import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Self, cast

from .attachments import Attachments
from .errors import ConfigurationError, LinkClosed, PeerTimeout, TransportError
from .events import Event
from .message import Ack, Message
from .process import exit_hooks
from .process.guarded_thread import GuardedThread
from .process.host_name import host_name
from .process.signals import DeferSignals, defer_signals
from .protocol.authentication import new_epoch
from .protocol.limits import Limits
from .protocol.session import MAX_FLOWS, FlowOptions, Overflow, Pace, Priority, Reliability
from .runtime import arguments
from .runtime.driver import URGENT_FLOW, SessionDriver
from .runtime.heartbeat_thread import HeartbeatThread
from .runtime.leader_follower import LeaderFollower
from .runtime.linger import Linger
from .runtime.link_state import LinkState
from .runtime.link_stats import link_stats
from .runtime.misnamed import Misnamed
from .runtime.no_peer import met_or_refused, no_peer_error
from .runtime.port_holder import in_use_here
from .runtime.port_probe import PortProbe
from .runtime.receive_loop import ReceiveLoop
from .runtime.receiver import EventStream, Receiver
from .runtime.sender import Sender
from .runtime.shutdown import Shutdown
from .runtime.transmit_thread import TransmitThread
from .stats import LinkStats
from .sync import Sync
from .transports import Transport
from .transports.base import check_threads

CLOSE_S = 0.25  # close waits this long for the thread that leads
THREADS = 3  # the one that receives, heartbeat thread and transmit thread

logger = logging.getLogger("twinlink")


class Link(Attachments, Misnamed):
    """One end of the channel; made by `twinlink.open`.  Every method may be called from any thread.

    Attributes:
        node: name of this node.
        epoch: the random 64-bit number of this session.
        transport_name, endpoint, listening: how it was opened; the endpoint as ``tcp/host:port``.
        max_payload: octets of the longest payload that it sends and takes.
        identity: of this node, and the keys that it trusts, as they are now; None: it was opened without one.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        name: str,
        node: str | None,
        limits: Limits,
        retention: int,
        send_timeout: float,
        busy_poll: bool,
        attach: Callable[["Link"], object] = lambda link: None,
    ) -> None:
        self.transport_name = name
        self.endpoint = ",".join(map(str, transport.endpoints))
        self.listening = transport.listening
        self.epoch = new_epoch(transport.identity.name if transport.identity is not None else None)
        # In containers every program is process 1, and those that share the host's network share its name.
        self.node = node or f"{host_name()}-{os.getpid()}-{self.epoch >> 48:04x}"
        self.max_payload = limits.max_payload
        self._retention = retention
        self._transport, self.identity = transport, transport.identity
        self._driver = SessionDriver(transport, node=self.node, epoch=self.epoch, limits=limits)
        self._session = self._driver.session
        self._senders, self._receivers = dict[str, Sender](), dict[str, Receiver]()
        self._flows_lock, self._linger = threading.Lock(), Linger()
        self._port_probe = PortProbe(transport.endpoint) if transport.scouts and not transport.listening else None
        receive_loop = ReceiveLoop(transport, self._driver, self._port_probe, busy_poll)
        self._leader_follower = LeaderFollower(
            f"twinlink-{self.node}", receive_loop.run_once, self._shut_down, transport.internal_errors
        )
        self._wait = self._leader_follower.wait
        self._event_stream = EventStream(self._leader_follower, self._driver.callbacks, self._session.events)
        self._driver.on_events = self._event_stream._on_events
        self._heartbeat_thread = HeartbeatThread(self.node, transport, self._driver, receive_loop.stand_in)
        self._transmit_thread = TransmitThread(self.node, transport, self._driver, self._senders)
        self._state = LinkState(
            self.endpoint,
            limits.max_payload,
            send_timeout,
            self._driver,
            self._wait,
            self._transmit_thread.wake,
            self._in_callback,
            lambda: self.closed,
            self._describe,
        )
        threads = self._heartbeat_thread, self._transmit_thread
        self._shutdown = Shutdown(transport, self._driver, *threads, self._port_probe, self._senders)
        Attachments.__init__(self)
        self._start(attach)

    def _start(self, attach: Callable[["Link"], object]) -> None:
        check_threads(THREADS + self._transport.threads)
        self._transport.epoch = self.epoch
        try:
            self._transport.open()
        except TransportError as error:
            raise in_use_here(error, self._transport) from error.__cause__
        try:
            exit_hooks.register(self)
            attach(self)
            self._driver.send_hello()
            self._heartbeat_thread.start()
            self._transmit_thread.start()
            self._leader_follower.start()
        except BaseException:  # Ctrl-C as well
            self._leader_follower.close(CLOSE_S)
            raise

    # What applications call

    def sender(
        self,
        flow: str,
        *,
        on_ack: Callable[[Ack], None] | None = None,
        reliability: Reliability | None = None,
        overflow: Overflow | None = None,
        priority: Priority | None = None,
        pace: Pace | None = None,
    ) -> Sender:
        """The sending end of a flow; asking again gives the same one (and sets ``on_ack`` where given).

        Args:
            flow: 1 to 63 letters, digits, dots, dashes or underscores.
            on_ack: called with each `Ack` on the thread that receives; it must not block.  What it raises is reported
                as HandlerError.
            reliability: ``"repair"`` (default): what a peer misses is retransmitted, and its application gets
                everything in order and once; ``"detect"``, for flows where late is useless: a gap is only reported.
            overflow: what happens when the link already keeps ``retention`` octets of this flow: ``"block"``
                (default) waits up to the link's ``send_timeout``, then raises SendTimeout; ``"drop-oldest"`` and
                ``"drop-newest"`` drop and report; ``"latest"`` keeps only the newest of what waits to be handed to
                the transport, for states of which only the last one counts.
            priority: ``"high"`` for small messages that bulk data on other flows must not delay: beside such a flow
                the others have no more in flight than the path needs and 192 KiB.  The default is ``"normal"``, except
                for the flow called ``control``.
            pace: ``"fastest"`` (default): the flow waits for the peers that keep up.  A peer for which alone it has
                waited for 0.2 s requests what it missed at its own pace, as long as that is kept; then it loses the
                oldest (`Lost` here, `Gap` there).  ``"slowest"``: the flow waits for every peer.

        Raises:
            ConfigurationError: an argument cannot be used, or the flow has been opened with another choice.
            LinkClosed: the link was closed.
            TransportError: peers could not be told of the flow; it is open all the same.
        """
        self._check_flow(flow)
        arguments.check_handler("on_ack", on_ack)
        arguments.check_choices(reliability, overflow, priority, pace)
        with self._flows_lock:
            sender = self._senders.get(flow) or self._open_flow(flow, reliability, overflow, priority, pace)
        given = (reliability, overflow, priority, pace)
        arguments.check_unchanged(flow, given, (sender.reliability, sender.overflow, sender.priority, sender.pace))
        if on_ack is not None:
            sender.on_ack = on_ack
        return sender

    @defer_signals
    def _open_flow(
        self,
        flow: str,
        reliability: Reliability | None,
        overflow: Overflow | None,
        priority: Priority | None,
        pace: Pace | None,
    ) -> Sender:
        """A sender for a flow that has none.  The caller holds `_flows_lock`."""
        if len(self._senders) >= MAX_FLOWS:
            raise ConfigurationError(f"flow {flow!r}: a link sends on at most {MAX_FLOWS} flows; open another link")
        priority = priority or ("high" if flow == URGENT_FLOW else "normal")
        options = FlowOptions(reliability or "repair", overflow or "block", priority, pace or "fastest")
        if priority == "high":
            self._transport.prefer(f"traffic/{flow}".encode())
        with self._driver.lock:
            core = self._session.open_flow(flow, self._retention, options, self._transport.added_octets)
        sender = self._senders[flow] = Sender(self._state, self._transport, core)
        self._driver.send_hello()  # peers are told of the flow before its first message
        return sender

    def receiver(
        self,
        flow: str,
        *,
        handler: Callable[[Message], None] | None = None,
        max_age: float | None = None,
        max_payload: int | None = None,
    ) -> Receiver:
        """The receiving end of a flow: iterate it, or give a handler.

        Args:
            flow: 1 to 63 letters, digits, dots, dashes or underscores.
            handler: called with each `Message` on the thread that receives, one at a time; it must not block.  What it
                raises is reported as HandlerError, and delivery goes on.
            max_age: seconds.  A message that is older when it arrives, or when what was missing before it has come, is
                not delivered, but counted and reported (`Stale`); while it waits for the application it is not looked
                at again.  Its age contains what the two clocks differ by.
            max_payload: octets of the longest payload that is taken; the link's, if that is less.  What is longer is
                rejected before it is assembled: `Lost` at its sender, `Unclaimed` here.

        Raises:
            ConfigurationError: an argument cannot be used.
            LinkClosed: the link was closed.
        """
        self._check_flow(flow)
        arguments.check_handler("handler", handler)
        arguments.check_limits(max_age, max_payload)
        with self._driver.lock:
            receive_flow = self._session.receive_flow(flow)
            receive_flow.subscribe(max_age, max_payload)
        made = Receiver(self._leader_follower, self._driver, receive_flow, self._describe)
        with self._flows_lock:
            receiver = self._receivers.setdefault(flow, made)
        if handler is not None:
            self._leader_follower.run_exclusively(lambda: self._driver.set_handler(receive_flow, handler))
        return receiver

    def sync(self, flow: str, *, stale_after: float = 0.5, out_after: float = 2.0, completeness: float = 0.99) -> Sync:
        """How fresh and how complete a flow is that this side receives; watched from the first call on.

        Args:
            flow: its name.
            stale_after: age in s of the newest message from which the flow is ``stale``.
            out_after: age in s from which it is ``out-of-sync``.
            completeness: part, from 0 to 1, of the last ten seconds' messages below which it is ``out-of-sync``.

        Every change of state is an event (`SyncChanged`).  Asking again gives the same object, with the thresholds as
        they were.

        Raises:
            ConfigurationError: an argument cannot be used.
            LinkClosed: the link was closed.
        """
        self._check_flow(flow)
        thresholds = arguments.checked_thresholds(stale_after, out_after, completeness)
        with self._driver.lock:
            return self._session.receive_flow(flow).watch(thresholds)

    def wait_ready(self, timeout: float | None = 5.0) -> None:
        """Return once a peer has said hello and confirmed ours; what is sent from then on reaches it.

        Raises:
            PeerTimeout: none did within ``timeout`` seconds.
            AuthenticationError: the listener and this side refuse each other; found out within two seconds.
            ConfigurationError, LinkClosed: ``timeout`` cannot be used; the link was closed.
        """
        arguments.check_timeout(timeout)
        self._wait(met_or_refused(lambda: self._session.up, self._transport), timeout)
        self._check_open()
        if not self._session.up:
            raise self._no_peer_error(timeout or 0.0)

    def _no_peer_error(self, within_s: float) -> PeerTimeout:
        """What to raise where no peer was up for so long, with the reason as far as it can be found, and advice."""
        heard = [peer.node for peer in self._session.known_peers() if peer.is_heard]
        return no_peer_error(self._transport, self.transport_name, heard, within_s)

    def peers(self) -> list[str]:
        """Names of the nodes that are up."""
        return self._session.up_names()

    def events(self, *, handler: Callable[[Event], None] | None = None) -> EventStream:
        """Loss, gaps, peers that come and go: iterate it, or give a callable handler (`twinlink.events`).

        Events from before the first call are kept, up to a limit; a handler gets those first.
        """
        arguments.check_handler("handler", handler)
        if handler is not None:
            self._leader_follower.run_exclusively(lambda: self._event_stream._set_handler(handler))
        return self._event_stream

    def stats(self) -> LinkStats:
        """Everything counted so far, as plain data: per flow sent and received, peers, malformed frames."""
        stats: Any = {
            "transport": self.transport_name,
            "endpoint": self.endpoint,
            "node": self.node,
            "epoch": f"{self.epoch:016x}",
            **link_stats(self._driver, self._senders, self._event_stream),
        }
        return cast(LinkStats, stats)

    def _in_callback(self) -> bool:
        return self._leader_follower.is_leading and self._driver.callbacks.running

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._leader_follower.closed

    def close(self) -> None:
        """Wait for outstanding acks as long as they come, at most 5 s; say goodbye, and give everything back.

        Ends within a second when none comes for 0.3 s, or at Ctrl-C.  A second call does nothing.  Logs what is left.
        """
        if self.closed or self._state.closing:
            return
        # On a thread of its own: the caller may be a signal handler, and what it has interrupted hold our locks.
        closing = GuardedThread(self._close, f"twinlink-{self.node}-close", self._transport.internal_errors)
        with DeferSignals():
            # First: acks could not settle, nor get through, while other threads go on sending.
            self._state.closing = self._driver.callbacks.closing = True
            starts = not self._leader_follower.is_leading
            if starts:
                try:
                    closing.start()
                except RuntimeError:  # no more threads, or the interpreter ends
                    starts = False
        if starts:
            self._linger.join(closing)
        else:
            self._close()

    def _close(self) -> None:
        if self._session.up and not self._leader_follower.is_leading:
            self._linger.wait_for_acks(self._driver, self._wait)
        ended = self._leader_follower.close(CLOSE_S)
        if not ended and self._driver.callbacks.running and not self._leader_follower.is_leading:
            logger.warning("link to %s: a handler is running; its thread ends the link afterwards", self.endpoint)

    def _close_flows(self) -> None:
        """For the end of the process, where a handler that does not return keeps the link from being given back."""
        self._shutdown.close_flows()

    def _abandon(self) -> None:
        """In a child that was forked: threads and sockets stayed with the parent, and locks may be held for ever.

        The caller is only told so.
        """
        self._state.closed_because = "was opened before this process was forked; open another one here"
        self._state.closing = True
        self._leader_follower.abandon()
        self._heartbeat_thread.abandon()
        self._driver.new_locks()
        for sender in list(self._senders.values()):
            sender._new_locks()
        self._new_state_locks()
        self._driver.close_flows()

    def _shut_down(self) -> None:
        self._state.closing = True
        try:
            self._shutdown.run()
            self._close_attachments()
        finally:
            exit_hooks.unregister(self)

    def _describe(self) -> str:
        how = f"{self.transport_name} {'listening on' if self.listening else 'connecting to'} {self.endpoint}"
        return f"{how}, closed" if self.closed else f"{how}, peers up: {', '.join(self.peers()) or 'none'}"

    def __repr__(self) -> str:
        return f"<twinlink.Link {self.node!r}: {self._describe()}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_flow(self, flow: str) -> None:
        self._check_open()
        arguments.check_flow_name(flow)

    def _check_open(self) -> None:
        if self.closed:
            raise LinkClosed(f"the link to {self.endpoint} {self._state.closed_because}")
