"""Interface of a transport: small hooks, implemented by each backend."""

import _thread
import operator
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from os import sched_yield
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import ConfigurationError, TransportError
from ..process import address
from ..process.internal_errors import InternalErrors
from ..process.ip_address import is_unspecified
from ..protocol.authentication import AuthenticatedPeer
from ..protocol.frames import AnyFrame
from ..spelling import near
from .refusals import Refusals

if TYPE_CHECKING:
    from ..identity.watched import WatchedIdentity  # needs a package that other links do without

PORT = 7447  # of an endpoint that names none
Frame = bytes | memoryview
MOST = 2**31 - 1  # the greatest integer that the drivers accept
THREAD_ENDS_S = 0.0001

_monotonic_ns = time.monotonic_ns


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of one host, written ``tcp/host:port``; ``host:port`` and ``host`` are read, too.

    IPv6 stands in brackets, a link-local address with its zone (RFC 4007 section 11): ``tcp/[fe80::1%eth0]:7447``.
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: object, default_port: int = PORT) -> "Endpoint":
        """Parse an endpoint.  Raises ConfigurationError with the expected form, or why it is not that of one host."""
        try:
            return cls(*address.parse(text, default_port))
        except ValueError as error:
            raise ConfigurationError(f"endpoint {error}") from None

    @classmethod
    def parse_remote(cls, text: object, default_port: int = PORT) -> "Endpoint":
        """Parse the endpoint of a listener, to connect to.  Raises ConfigurationError as `parse`, and where the host
        stands for every address of a listener's host."""
        remote = cls.parse(text, default_port)
        if is_unspecified(remote.host):
            here = "[::1]" if ":" in remote.host else "127.0.0.1"
            raise ConfigurationError(
                f"endpoint {text!r}: {remote.host} stands for every address of the host that listens: connect to the "
                f"name or an address of that host, {here} if it is this one"
            )
        return remote

    def __str__(self) -> str:
        return f"tcp/{self.host}:{self.port}"


@dataclass(frozen=True)
class Options:
    """Base of a transport's options: a frozen dataclass of fields with defaults, each documented at its definition.

    A number must be above 0, or may be 0 if that is the default, and is at most `MOST`, or the limit of its field:
    ``field(default=16, metadata={"most": 16})``.
    """


class Transport(ABC):
    """Moves frames between one listener and any number of connectors, under exact topics.

    Frames of a listener reach every connector; frames of a connector reach the listener.  `open` and `send` do not
    depend on whether the other side is up: the link above tracks peers.

    Threads: `send` may be called by several threads at once.  `receive` is called by one thread at a time, not
    always the same.  `close` is called once, while no thread is in `receive`; a later `send` does nothing.
    """

    options_class: ClassVar[type[Options]] = Options
    ports: ClassVar[int] = 1  # consecutive TCP ports from the endpoint's
    added_octets: ClassVar[int] = 0  # added by `join` after header and payload
    direct_octets: ClassVar[int] = 2 * 1024 * 1024  # octets in flight before the link queues; shared by the flows
    gives_up_ns: int = 0  # `send` may block for so long after a peer fell silent: use `offer` until then
    whole_octets: ClassVar[int] = 2 * 1024 * 1024  # the longest frame that it carries well on its own
    # Whether `send` and `offer` take frames with a long payload as `SplitFrame`, to transmit it without a copy.
    takes_split: ClassVar[bool] = False
    via: Endpoint | None = None  # where a connector reaches a proxy, in place of the listener
    scouts: bool = False  # whether the link probes the listener's port, see `reached`; may change while it is open
    epoch: int | None = None  # of the link that opens it, set before
    admits_only_trusted: bool = False  # whether a listener refuses peers without a certificate that it trusts
    hellos_overtake: ClassVar[bool] = False  # whether hellos may pass data on their way
    takes_identity: ClassVar[bool] = False  # whether it can authenticate its peers
    identity: "WatchedIdentity | None" = None  # of the link that opens it, set before
    # With an identity: the peer of the connection that the last frame of `receive` came over; None: not trusted.
    sender: AuthenticatedPeer | None = None
    # For a person: why this side and the listener refuse each other, and what repairs it.  Only of a connector.
    authentication_problem: str | None = None

    def __init__(self, endpoint: Endpoint, listening: bool, max_frame: int, options: Any) -> None:
        self.endpoint = endpoint
        self.endpoints: tuple[Endpoint, ...] = (endpoint,)
        self.listening = listening
        self.max_frame = max_frame  # octets; the longest frame the link will send or accept
        self.frame_limit = max_frame  # octets; of the longest frame that the path takes, as far as is known
        self.frame_limit_reason = ""  # for a person: what limits it, and what to change; "" while nothing less is known
        self.too_long = 0  # frames that `send` dropped because they exceeded the limit
        self.limits_exceeded: Counter[str] = Counter()  # connections that it ended for a limit, by option
        self.foreign_connections = 0  # that ended in the handshake, as their program speaks another protocol
        self.refusals = Refusals()
        self.internal_errors = InternalErrors()  # of the threads of transport and link
        self.options = options

    def alternatives(self, endpoints: Sequence["Endpoint"]) -> None:
        """Add further endpoints to `endpoints`, if the transport can use any one of several.

        Raises ConfigurationError; called before `open`.
        """
        raise ConfigurationError(
            "several endpoints are for transport zenoh with mode='client', whose routers they are: give one"
        )

    @property
    def threads(self) -> int:
        """Greatest number of threads and processes, with one peer; the link checks that they can be started."""
        return 0

    @abstractmethod
    def open(self) -> None:
        """Listen or connect, without waiting for a peer.  Raises TransportError."""

    @abstractmethod
    def send(self, topic: bytes, frame: Any) -> None:
        """Send a frame to all connected peers; in order, and without loss while they are connected.

        It is bytes.  Where the transport ``takes_split``, that of a payload of `SPLIT_OCTETS` or more is a
        `SplitFrame`: its header is as `join` makes it of an empty payload, and both parts may be kept, as they never
        change.
        """

    def prefer(self, topic: bytes) -> None:  # noqa: B027  (most transports have one queue for everything)
        """Give frames on ``topic`` priority over other data from now on, if the transport can."""

    def offer(self, topic: bytes, frame: Any) -> None:
        """Send a frame without blocking: drop it for a peer that has no room for it.

        For frames without a known receiver, and while a silent peer may block the others.
        """
        self.send(topic, frame)

    def joins(self, epoch: int, hears_us: bool) -> bool:
        """Whether this peer has connected but does not receive messages yet; until then it is not up.

        Called for each of its hellos until it is up; ``hears_us``: whether this one acknowledges ours.
        """
        return False

    def why_alone(self) -> str | None:
        """Advice for a link without a peer, if the transport knows more than the link."""
        return None

    def greeted(self) -> None:  # noqa: B027  (most transports get everything as soon as they are connected)
        """A peer has said hello.  Called by the receiving thread, outside `receive`."""

    def parted(self) -> None:  # noqa: B027
        """No peer is heard.  Called as `greeted` is."""

    # (header, payload) -> one frame for `send`, with the transport's own octets.  Takes bytes and views.
    join: Callable[[bytes, Any], bytes] = staticmethod(operator.add)

    @abstractmethod
    def receive(self, timeout_s: float) -> tuple[bytes, AnyFrame] | None:
        """The next topic and frame; None after ``timeout_s`` seconds (0: without blocking) or a little earlier.

        A message whose payload came apart from its header is as `received_split` says.

        A message that cannot be a topic and one frame is returned as ``(b"", b"")`` for the link to count.
        """

    def poll(self, until_mono_ns: int) -> tuple[bytes, AnyFrame] | None:
        """As `receive`, until this time: does not block, but yields the processor now and then."""
        while (received := self.receive(0)) is None and _monotonic_ns() < until_mono_ns:
            sched_yield()
        return received

    def tick(self) -> None:  # noqa: B027  (for those with ``takes_identity``)
        """Heed what has changed in the identity.  Called by the receiving thread ten times a second or more."""

    def renew(self, patience: int) -> None:  # noqa: B027  (most transports find out by themselves)
        """No peer has been up for a while: reconnect, if the connection may be dead.

        A connection made since the last call is kept until the next one.  ``patience`` multiplies the time-out of
        connecting.  It is 1 at first and varies until a peer is up, because the path may be long.  Then it stays, or
        decreases on a short path, until no peer has been up for two minutes.  Called by the receiving thread, outside
        `receive`.
        """

    def reached(self, patience: int) -> None:  # noqa: B027  (for those with ``scouts``)
        """The other side's port answers again, or needs more patience: connect now.  Otherwise as `renew`."""

    @abstractmethod
    def close(self) -> None:
        """Release sockets and threads within half a second, and send queued frames as far as possible in that time."""


def check_descriptors(count: int) -> None:
    """Raise TransportError if this process can open fewer files than a driver needs.

    Drivers do not report it: libzmq aborts the process, and Zenoh's threads end silently.
    """
    opened = []
    try:
        for _ in range(count):
            opened.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        raise TransportError(
            f"this process can open {len(opened)} more files, and a link takes up to {count}: {error.strerror}; "
            "close what is not needed, or raise the limit (`ulimit -n`)"
        ) from error
    finally:
        for one in opened:
            os.close(one)


def check_threads(count: int) -> None:
    """Raise TransportError if this process can start fewer threads than a link and its driver need.

    Without them libzmq aborts the process, and Zenoh panics.  The check takes about 0.1 ms per thread.
    """
    ids: list[int] = []
    end = threading.Lock()

    def stay() -> None:
        ids.append(threading.get_native_id())
        with end:
            pass

    started = 0
    try:
        with end:
            while started < count:
                _thread.start_new_thread(stay, ())  # threading.Thread takes twice as long, as it waits until each runs
                started += 1
    except RuntimeError as error:
        raise TransportError(
            f"this process can start {started} more threads, and a link takes up to {count}: end what is not needed, "
            "or raise the limit (`ulimit -u`, `ulimit -v`, or pids and memory of its container)"
        ) from error
    finally:
        while len(ids) < started or [one for one in ids if Path("/proc/self/task", str(one)).exists()]:
            time.sleep(THREAD_ENDS_S)  # a thread that has not ended counts


def advice(reason: str) -> str:
    """Advice for this error of listening; empty if there is none."""
    if "in use" in reason:
        return "; `ss -ltnp` shows by which program: end it, or take another port"
    if "assign" in reason:
        return "; it is not an address of this host (`ip address` shows those): listen on one of them, or on 0.0.0.0"
    if "ermission" in reason:
        return "; ports below 1024 are for root: take a higher one"
    return ""


def make_options(name: str, options_class: type[Options], given: dict[str, Any], others: Iterable[str] = ()) -> Options:
    """The given options, with defaults.

    Raises ConfigurationError that names an unknown or wrong option; ``others`` are the names of the link's options.
    """
    known = {field.name: field for field in fields(options_class)}
    unknown = sorted(set(given) - set(known))
    if unknown:
        choices = ", ".join(sorted(known) + sorted(others)) or "none"
        raise ConfigurationError(
            f"unknown option {', '.join(unknown)} for transport {name!r}; it knows: {choices}"
            f"{near(unknown[0], (*known, *others))}"
        )
    options = options_class(**given)
    for option, field in known.items():
        value, default = getattr(options, option), field.default
        if type(value) is not type(default) and not (isinstance(default, float) and type(value) is int):
            raise ConfigurationError(f"option {option} takes {type(default).__name__}, not {value!r}")
        if isinstance(value, int | float) and not isinstance(value, bool):
            most = field.metadata.get("most", MOST)
            if not (0 < value <= most or value == default):
                least = "0 or more" if default == 0 else "above 0"
                raise ConfigurationError(f"option {option} must be {least} and at most {most}, not {value!r}")
    return options
