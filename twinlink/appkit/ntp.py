"""This host's clock offset according to an NTP server (RFC 5905)."""

import contextlib
import math
import secrets
import socket
import time
from dataclasses import dataclass
from typing import Any

from ..process import resolver
from ..process.address import parse as parse_address
from ..process.ip_address import family_of
from . import formatting, ntp_answer
from .ntp_answer import Answer, UnrelatedPacket, UnusableAnswer

TIMEOUT_S = 2.0
PORT = 123
MAX_DISTANCE_NS = 1_000_000_000  # MAXDIST of RFC 5905, appendix A.1.1: a server beyond it is not fit to set a clock by
_FREQUENCY_TOLERANCE = 15e-6  # PHI, s/s: what the dispersion grows by
_MAX_SLEW = 500e-6  # s/s between wall clock and monotonic clock that is no step (adjtimex(2))
_QUICK_NS, _READINGS = 10_000, 5  # of both clocks: until one is as quick, at most as many
_DATAGRAM_OCTETS = 2048


def parse(server: str) -> tuple[str, int]:
    """Host, without brackets, and port of ``HOST`` or ``HOST:PORT``; a link-local address has its zone.

    Raises ValueError.
    """
    host, port = parse_address(server, PORT)
    return host.strip("[]"), port


def view(server: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """One answer of a server: its clock minus ours, and the bound of the error; all in ns.

    ``bound_ns`` is the root distance of RFC 5905 section 11.2 (appendix A.5.5.2) without a daemon's own jitter: half
    the delay to the primary server (``root_delay_ns``) plus the dispersion on the way (``root_dispersion_ns``), both as
    seen from this host, the resolution of both clocks included.  A failure, or an answer that breaks a rule, gives
    ``server``, ``error``, and the code of a kiss-o'-death packet as ``kiss``.

    A host's addresses are asked in turn, each for its share of the time, until one gives an offset.

    Raises:
        ValueError: ``server`` is not HOST or HOST:PORT.
    """
    host, port = parse(server)
    end_s = time.monotonic() + timeout_s
    try:
        addresses = resolver.addresses(host, timeout_s)
    except OSError as error:  # TimeoutError, too
        why = "does not resolve" if isinstance(error, socket.gaierror) else f"does not resolve ({error})"
        return {"server": server, "error": f"{host} {why}: check the name, and DNS"}
    failures, kiss = [], None
    for place, address in enumerate(addresses):
        share_s = max(end_s - time.monotonic(), 0.0) / (len(addresses) - place)
        where = f"{host}{f' ({address})' if address != host else ''}, UDP port {port}"
        try:
            exchange = _ask(address, port, share_s)
            return {"server": server, **exchange.figures()}
        except UnusableAnswer as error:
            failures.append(f"{where}: no offset from its answer: {error}")
            kiss = error.kiss or kiss
        except TimeoutError as error:
            other = f" to this question, only {error}" if str(error) else ""
            advice = "" if other else ": does a server run there, and is UDP let through?"
            failures.append(f"{where}: no answer{other} within {share_s:.2g} s{advice}")
        except ConnectionRefusedError:
            failures.append(f"{where}: no answer: nothing listens there, or a firewall rejects UDP")
        except OSError as error:
            failures.append(f"{where}: {error.strerror or error}")
    return {"server": server, "error": "; ".join(failures), **({"kiss": kiss} if kiss else {})}


@dataclass(frozen=True, slots=True)
class _Instant:
    """One instant on both clocks of this host; the monotonic one is not set, which shows when the other is.

    Attributes:
        wall_ns, mono_ns: time of day (Unix) and monotonic time.
        apart_ns: at most as far apart were they read.
    """

    wall_ns: int
    mono_ns: int
    apart_ns: int

    @classmethod
    def now(cls) -> "_Instant":
        best: _Instant | None = None
        for _ in range(_READINGS):  # the scheduler may come in between
            before_ns, wall_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
            if best is None or after_ns - before_ns < best.apart_ns:
                best = cls(wall_ns, before_ns, after_ns - before_ns)
            if best.apart_ns < _QUICK_NS:
                break
        assert best is not None
        return best


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A question and its answer.

    Attributes:
        asked, answered: T1 and T4.
        answer: T2, T3 and what the server says of itself.
    """

    asked: _Instant
    answered: _Instant
    answer: Answer

    def figures(self) -> dict[str, Any]:
        """The fields of `view`.  Raises UnusableAnswer where the four timestamps contradict each other."""
        elapsed_ns = self.answered.mono_ns - self.asked.mono_ns
        resolution_ns = self.asked.apart_ns + self.answered.apart_ns + self.answer.precision_ns
        step_ns = self.answered.wall_ns - self.asked.wall_ns - elapsed_ns
        if abs(step_ns) > self.asked.apart_ns + self.answered.apart_ns + _MAX_SLEW * elapsed_ns + 1000:
            raise UnusableAnswer(
                f"this host's clock was set by {_signed(step_ns)} between question and answer: ask again"
            )
        received_ns, sent_ns = (
            ntp_answer.unix_ns(stamp, self.asked.wall_ns) for stamp in (self.answer.received, self.answer.transmitted)
        )
        residence_ns = sent_ns - received_ns
        delay_ns = elapsed_ns - residence_ns
        if residence_ns < -resolution_ns:
            raise UnusableAnswer(f"by its timestamps it answered {formatting.time(-residence_ns)} before it was asked")
        if delay_ns < -resolution_ns:
            raise UnusableAnswer(
                f"the delay is negative ({_signed(delay_ns)}): by its timestamps it held the question for "
                f"{formatting.time(residence_ns)}, and the answer was here after {formatting.time(elapsed_ns)}"
            )
        root_delay_ns = self.answer.root_delay_ns + max(delay_ns, 0)
        dispersion_ns = self.answer.root_dispersion_ns + resolution_ns + math.ceil(_FREQUENCY_TOLERANCE * elapsed_ns)
        bound_ns = math.ceil(root_delay_ns / 2) + dispersion_ns
        if bound_ns >= MAX_DISTANCE_NS:
            raise UnusableAnswer(
                f"its root distance is {formatting.time(bound_ns)}; from {formatting.time(MAX_DISTANCE_NS)} on a "
                "server is not fit for synchronisation (RFC 5905 appendix A.5.5.2)"
            )
        there_ns, back_ns = received_ns - self.asked.wall_ns, sent_ns - self.asked.wall_ns - elapsed_ns
        return {
            "offset_ns": (there_ns + back_ns) // 2,
            "delay_ns": delay_ns,
            "root_delay_ns": root_delay_ns,
            "root_dispersion_ns": dispersion_ns,
            "bound_ns": bound_ns,
            "stratum": self.answer.stratum,
        }


def _ask(address: str, port: int, timeout_s: float) -> _Exchange:
    """Ask one address; other packets are ignored, because they must not keep the answer from being heard.

    Raises:
        UnusableAnswer: no offset follows from the answer.
        TimeoutError: no answer came; the message says which packets were ignored.
        OSError: the address cannot be reached.
    """
    ignored: dict[str, int] = {}
    nonce = secrets.randbits(64) or 1
    with socket.socket(family_of(address), socket.SOCK_DGRAM) as asking:
        asking.connect((address, port))  # then datagrams of other hosts are not received, and refusals are
        asked = _Instant.now()
        asking.send(ntp_answer.question(nonce))
        end_s = time.monotonic() + timeout_s
        with contextlib.suppress(TimeoutError):
            while (left_s := end_s - time.monotonic()) > 0:
                asking.settimeout(left_s)
                octets = asking.recv(_DATAGRAM_OCTETS)
                answered = _Instant.now()
                try:
                    return _Exchange(asked, answered, ntp_answer.check(octets, nonce))
                except UnrelatedPacket as unrelated:
                    ignored[str(unrelated)] = ignored.get(str(unrelated), 0) + 1
    raise TimeoutError(
        formatting.listed(f"{what}{f' ({times} times)' if times > 1 else ''}" for what, times in ignored.items())
    )


def _signed(value_ns: int) -> str:
    return f"{'+' if value_ns > 0 else ''}{formatting.time(value_ns)}"
