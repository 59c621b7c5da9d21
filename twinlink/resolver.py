"""What a host name stands for, without waiting for long: without an answer a resolver takes tens of seconds."""

import ipaddress
import socket
import threading
import time

ASK_AGAIN_S = 0.3


def is_address(host: str) -> bool:
    """Whether this is an IP address (IPv6 in brackets or without), and no name."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def addresses(host: str, within_s: float) -> list[str]:
    """The addresses of a host, IPv4 first.  Raises TimeoutError, or OSError where there are none."""
    lookup = Lookup(host)
    if not lookup.ended(within_s):
        raise TimeoutError("DNS does not answer")
    if lookup.failure is not None:
        raise lookup.failure
    return lookup.addresses


class Lookup:
    """One question to the system's resolver, asked on a thread of its own.

    Attributes:
        addresses: once it has ended; IPv4 first, as who listens everywhere often listens there only, else in the
            resolver's order.
        failure: why there are none.
    """

    def __init__(self, host: str) -> None:
        self.addresses: list[str] = []
        self.failure: OSError | None = None
        self._host = host.strip("[]")
        self._ended = threading.Event()
        # Not among the threads named twinlink-, which the end of the process waits for: nothing ends this one sooner.
        try:
            threading.Thread(target=self._ask, name="resolver of twinlink", daemon=True).start()
        except RuntimeError:  # there may be no more threads: better late than never
            self._ask()

    def ended(self, within_s: float = 0.0) -> bool:
        """Whether the resolver has answered, or does so within this time."""
        return self._ended.wait(within_s)

    def _ask(self) -> None:
        try:
            answers = socket.getaddrinfo(self._host, None, type=socket.SOCK_STREAM)
            found = [socket.getnameinfo(address, socket.NI_NUMERICHOST)[0] for *_, address in answers]  # with its zone
            self.addresses = sorted(dict.fromkeys(found), key=lambda address: ":" in address)
        except OSError as error:
            self.failure = error
        except UnicodeError:
            self.failure = OSError("no host can have this name")
        finally:
            self._ended.set()


class Whereabouts:
    """Where the other side may be while nobody is met: the addresses of its host, asked for again and again.

    For one thread.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._address = ""  # the last that was given
        self._turns = False
        self._lookup: Lookup | None = None
        self._asked_s = -ASK_AGAIN_S  # monotonic

    def turn(self) -> None:
        """Nobody is there: the next address, where the host has several."""
        self._turns = True

    def news(self, within_s: float = 0.0) -> str | None:
        """Another address than the last, if the resolver gives one within this time; ask it, if that is due."""
        now_s = time.monotonic()
        if self._lookup is None and now_s - self._asked_s >= ASK_AGAIN_S:
            self._asked_s = now_s
            self._lookup = Lookup(self._host)
        if self._lookup is None or not self._lookup.ended(within_s):
            return None
        found, self._lookup = self._lookup.addresses, None
        before = self._address
        if found and (self._turns or before not in found):
            self._turns = False
            self._address = found[(found.index(before) + 1) % len(found) if before in found else 0]
        return self._address if self._address != before else None
