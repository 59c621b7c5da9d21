"""What a transport is: small hooks, filled by each backend."""

import _thread
import operator
import os
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from ..errors import ConfigurationError, TransportError

_ENDPOINT = re.compile(r"tcp/(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")

Frame = bytes | memoryview
MOST = 2**31 - 1  # what the drivers, in C and Rust, take
THREAD_ENDS_S = 0.0001


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A static address, written ``tcp/host:port`` (IPv6 in brackets)."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Endpoint":
        """Raises ConfigurationError showing the form that is expected."""
        match = _ENDPOINT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise ConfigurationError(f"endpoint {text!r} is not of the form tcp/host:port, such as tcp/10.0.0.5:7447")
        if not 1 <= int(match["port"]) <= 65535:
            raise ConfigurationError(f"endpoint {text!r}: a port is a number from 1 to 65535")
        try:
            match["host"].encode("idna")  # as the resolver will
        except UnicodeError:
            raise ConfigurationError(
                f"endpoint {text!r}: between the dots of a host name stand 1 to 63 characters"
            ) from None
        return cls(match["host"], int(match["port"]))

    def __str__(self) -> str:
        return f"tcp/{self.host}:{self.port}"


@dataclass(frozen=True)
class Options:
    """Base of a transport's options: a frozen dataclass whose fields have defaults, each documented where it stands.

    A number must be above 0, or may be 0 where that is the default, and is at most `MOST`, or what its field says:
    ``field(default=16, metadata={"most": 16})``.
    """


class Transport(ABC):
    """Moves frames between one listener and any number of connectors, under exact topics.

    What a listener sends reaches every connector; what a connector sends reaches the listener.  Whether the other
    side is there does not matter to `open` and `send`: the link above finds out who listens.

    Threads: `send` may be called by several threads at once.  `receive` is called by one thread at a time, not
    always the same.  `close` is called once, while nobody is in `receive`; a `send` that comes later does nothing.
    """

    options_class: ClassVar[type[Options]] = Options
    ports: ClassVar[int] = 1  # consecutive TCP ports from the endpoint's
    added_octets: ClassVar[int] = 0  # by `join`, behind header and payload
    direct_octets: ClassVar[int] = 2 * 1024 * 1024  # may be on its way before the link holds back; flows share it
    gives_up_ns: int = 0  # so long after a peer fell silent `send` may wait for it: use `offer` until then
    whole_octets: ClassVar[int] = 2 * 1024 * 1024  # the longest frame it takes well, if it is the only one
    scouts: bool = False  # it has the link find out when a listener's port answers again, see `reached`
    epoch: int | None = None  # of the link that opens it, set before

    def __init__(self, endpoint: Endpoint, listening: bool, max_frame: int, options: Any) -> None:
        self.endpoint = endpoint
        self.endpoints: tuple[Endpoint, ...] = (endpoint,)
        self.listening = listening
        self.max_frame = max_frame  # octets; the longest frame the link will send or accept
        self.options = options

    def alternatives(self, endpoints: Sequence["Endpoint"]) -> None:
        """Further endpoints to connect to, where one is enough and the transport can use several: add to `endpoints`.

        Raises ConfigurationError; called before `open`.
        """
        raise ConfigurationError("this transport connects to one endpoint; give connect= one")

    @property
    def threads(self) -> int:
        """So many threads and processes it has at most, with one peer; the link sees to it that they can be started."""
        return 0

    @abstractmethod
    def open(self) -> None:
        """Listen or connect, without waiting for anybody.  Raises TransportError."""

    @abstractmethod
    def send(self, topic: bytes, frame: bytes) -> None:
        """Hand a frame to everybody at the other end; in order, and without loss while they are connected."""

    def prefer(self, topic: bytes) -> None:  # noqa: B027  (most transports have one queue for everything)
        """What is sent on ``topic`` from now on goes before other data, where the transport can do that."""

    def offer(self, topic: bytes, frame: bytes) -> None:
        """Hand over a frame, but whoever has no room for it does not get it: drop it there rather than wait.

        For what nobody is known to hear, and while a peer that fell silent may hold up the others.
        """
        self.send(topic, frame)

    def joins(self, epoch: int, hears_us: bool) -> bool:
        """Whether this peer has connected, and gets hellos and acks but no messages yet: it is not up before.

        Asked at each of its hellos until it is up; ``hears_us``: of which this is one that has got ours.
        """
        return False

    def why_alone(self) -> str | None:
        """What to check while no peer is heard, if the transport knows better than the link."""
        return None

    def greeted(self) -> None:  # noqa: B027  (most transports get everything as soon as they are connected)
        """Somebody has said hello.  Called by the thread that receives, while it is not in `receive`."""

    def parted(self) -> None:  # noqa: B027
        """Nobody is heard any more, or yet.  Called as `greeted` is."""

    # (header, payload) -> one frame for `send`, with what the transport adds to it.  It takes bytes and views.
    join: Callable[[bytes, Any], bytes] = staticmethod(operator.add)

    @abstractmethod
    def receive(self, timeout_s: float) -> tuple[bytes, Frame] | None:
        """The next topic and frame; None after ``timeout_s`` seconds (0: what is there) or a little earlier.

        A message that cannot be a topic and one frame is returned as ``(b"", b"")`` for the link to count.
        """

    def renew(self, patience: int) -> None:  # noqa: B027  (most transports find out by themselves)
        """Nobody has been up for a while: connect anew, if the old connection may be one in name only.

        One that was made since the last call has until the next one to prove itself.  ``patience`` says how many times
        longer than by default a connection may take to be made.  It is 1 at first and changes until somebody is up: the
        path may be long.  Then it stays, or becomes less where the path is short, until nobody has been up for two
        minutes.  Called by the thread that receives, while it is not in `receive`.
        """

    def reached(self, patience: int) -> None:  # noqa: B027  (for those with ``scouts``)
        """The other side's port answers, after it did not, or needs more patience: connect now.  Else as `renew`."""

    @abstractmethod
    def close(self) -> None:
        """Give back sockets and threads within half a second, sending what can be sent in that time."""


def check_descriptors(count: int) -> None:
    """Raise TransportError where this process can open fewer files than a driver needs.

    For drivers that do not say so: without them libzmq ends the process, and Zenoh's threads end without a word.
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
    """Raise TransportError where this process can start fewer threads than a link and its driver need.

    Without them libzmq ends the process, and Zenoh panics.  Takes about 0.1 ms for each.
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
                _thread.start_new_thread(stay, ())  # threading.Thread takes twice as long: it waits until each runs
                started += 1
    except RuntimeError as error:
        raise TransportError(
            f"this process can start {started} more threads, and a link takes up to {count}: end what is not needed, "
            "or raise the limit (`ulimit -u`, `ulimit -v`, or pids and memory of its container)"
        ) from error
    finally:
        while len(ids) < started or [one for one in ids if Path("/proc/self/task", str(one)).exists()]:
            time.sleep(THREAD_ENDS_S)  # one that has not ended counts


def advice(reason: str) -> str:
    """What to do next when the system gives this reason for not listening; empty where there is nothing to say."""
    if "in use" in reason:
        return "; `ss -ltnp` shows by which program: end it, or take another port"
    if "assign" in reason:
        return "; it is not an address of this host (`ip address` shows those): listen on one of them, or on 0.0.0.0"
    if "ermission" in reason:
        return "; ports below 1024 are for root: take a higher one"
    return ""


def make_options(name: str, options_class: type[Options], given: dict[str, Any], others: Iterable[str] = ()) -> Options:
    """The options as given, defaults filled in.

    Raises ConfigurationError naming what is unknown or wrong; ``others`` are options that are not the transport's.
    """
    known = {field.name: field for field in fields(options_class)}
    unknown = sorted(set(given) - set(known))
    if unknown:
        choices = ", ".join(sorted(known) + sorted(others)) or "none"
        raise ConfigurationError(f"unknown option {', '.join(unknown)} for transport {name!r}; it knows: {choices}")
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
