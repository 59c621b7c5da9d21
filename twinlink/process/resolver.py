"""Name resolution with a time limit: without an answer, a resolver takes tens of seconds.

All that takes a host takes its addresses from here: a connector tries them in order, a listener listens on all.
"""

import errno
import logging
import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack

from .guarded_thread import GuardedThread
from .ip_address import family_of, has_v6, is_address, is_broadcast, is_group, is_own
from .wakeup import Wakeup

REFRESH_S = 0.3
ATTEMPTS = 3  # addresses of a name that `connect` tries
LISTEN_RESOLVE_S = 5.0  # time-out of the resolver for the name of a listener
CONNECT_TIMEOUT_S = 1.0  # the longest round trip that there is patience for, and a little (reconnect.py)
OTHERS_TIMEOUT_S = 0.1  # for the others, when one of several addresses has answered


logger = logging.getLogger("twinlink")


def addresses(host: str, within_s: float) -> list[str]:
    """The addresses of a host, IPv4 first; an address is its own.  Raises TimeoutError, or OSError if it has none."""
    if is_address(host):
        return [host.strip("[]")]
    lookup = Lookup(host)
    if not lookup.ended(within_s):
        raise TimeoutError("DNS does not answer")
    if lookup.failure is not None:
        raise lookup.failure
    return lookup.addresses


def listen_addresses(host: str) -> list[str]:
    """Where a listener on this host listens: at an address itself, or at every address of a name.

    ``::`` is every address, also where the kernel has no IPv6.
    Those of a name that this host does not have are left out with a warning, unless it has none of them.

    Raises:
        OSError: the name is not resolved.
    """
    found = addresses(host, LISTEN_RESOLVE_S)
    if found == ["::"] and not has_v6():
        return ["0.0.0.0"]
    if is_address(host):
        return found
    own = [address for address in found if is_own(address)]
    if own and own != found:
        others = ", ".join(address for address in found if address not in own)
        logger.warning("%s: listening on %s only, as this host does not have %s", host, ", ".join(own), others)
    return own or found


def connect(host: str, port: int, within_s: float) -> socket.socket:
    """A TCP connection to the first address of a host that accepts one, of `ATTEMPTS`.

    ``within_s`` is for resolving the name, and again for each address.  Raises OSError: that of the first address.
    """
    first: OSError | None = None
    for address in addresses(host, within_s)[:ATTEMPTS]:
        try:
            return socket.create_connection((address, port), timeout=within_s)
        except OSError as error:
            first = first or error
    assert first is not None
    raise first


def accepting_addresses(hosts: Sequence[str], port: int) -> list[str]:
    """Those of these addresses where something listens, in the order of their answers."""
    accepting: list[str] = []
    with selectors.DefaultSelector() as asked, ExitStack() as made:
        for host in hosts:
            try:
                one = made.enter_context(socket.socket(family_of(host)))
                one.setblocking(False)
                if one.connect_ex((host, port)) not in {0, errno.EINPROGRESS}:
                    continue
            except OSError:  # no IPv6 here, or no descriptors
                continue
            asked.register(one, selectors.EVENT_WRITE, (host, one))
        until_s = time.monotonic() + CONNECT_TIMEOUT_S
        while asked.get_map() and (left_s := until_s - time.monotonic()) > 0:
            for key, _ in asked.select(left_s):
                host, one = key.data
                asked.unregister(one)
                if not one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    accepting.append(host)
                    until_s = min(until_s, time.monotonic() + OTHERS_TIMEOUT_S)
    return accepting


class Lookup:
    """One question to the system's resolver, asked on a thread of its own.

    Attributes:
        addresses: once it has ended; IPv4 first, as a program that listens everywhere often listens there only, else in
            the resolver's order.  Of several only those where something listens at ``port``, if it does at any.
        failure: why there are none.
    """

    def __init__(self, host: str, port: int | None = None) -> None:
        self.addresses: list[str] = []
        self.failure: OSError | None = None
        self._host = host.strip("[]")
        self._port = port
        self._ended = False
        self._wakeup = Wakeup()
        # Not among the threads named twinlink-, which the end of the process waits for: nothing ends this one sooner.
        try:
            GuardedThread(self._resolve, "resolver of twinlink").start()
        except RuntimeError:  # there may be no more threads: better late than never
            self._resolve()

    def ended(self, within_s: float = 0.0) -> bool:
        """Whether the resolver has answered, or does so within this time."""
        if not self._ended:
            self._wakeup.wait(within_s)
        return self._ended

    def _resolve(self) -> None:
        try:
            answers = socket.getaddrinfo(self._host, None, type=socket.SOCK_STREAM)
            found = [socket.getnameinfo(address, socket.NI_NUMERICHOST)[0] for *_, address in answers]  # with its zone
            found = sorted(dict.fromkeys(found), key=lambda address: ":" in address)
            found = [address for address in found if not is_group(address) and not is_broadcast(address)]
            if not found:
                raise OSError("it stands for a multicast group or a broadcast address, not for a host")
            if self._port is not None and len(found) > 1:
                found = accepting_addresses(found, self._port) or found
            self.addresses = found
        except OSError as error:
            self.failure = error
        except UnicodeError:
            self.failure = OSError("no host can have this name")
        except BaseException as error:
            self.failure = OSError(f"its lookup failed: {error!r}")
            raise
        finally:
            self._ended = True
            self._wakeup.wake()


class RepeatedLookup:
    """Where the other side may be while no peer is met: the addresses of its host, looked up again and again.

    Of several those where something listens: a transport may be given long for each attempt.  For one thread.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._address = ""  # the last that was given
        self._wants_next = False
        self._lookup: Lookup | None = None
        self._asked_s = -REFRESH_S  # monotonic

    def next_address(self) -> None:
        """No peer is there: the next address, where the host has several."""
        self._wants_next = True

    def poll(self, within_s: float = 0.0) -> str | None:
        """Another address than the last, if the resolver gives one within this time; ask it, if that is due."""
        now_s = time.monotonic()
        if self._lookup is None and now_s - self._asked_s >= REFRESH_S:
            self._asked_s = now_s
            self._lookup = Lookup(self._host, self._port)
        if self._lookup is None or not self._lookup.ended(within_s):
            return None
        found, self._lookup = self._lookup.addresses, None
        before = self._address
        if found and (self._wants_next or before not in found):
            self._wants_next = False
            self._address = found[(found.index(before) + 1) % len(found) if before in found else 0]
        return self._address if self._address != before else None
