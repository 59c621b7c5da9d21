"""One side of a sweep, in a process of its own: `python -m twinlink_measure.worker`.

Commands are lines of JSON on stdin; the answer is a line on stdout with the same ``id``, after lines with ``part`` that
contain rows.  It ends when stdin does.  The same program runs on both sides; in a cell one sends and the other
reflects:

    open -> (reflect | warm) -> mark -> send -> finish -> ... -> close

With ``--listen-only HOST:FIRST-LAST`` it serves a sweep on another host, within `request_bounds`: it only listens, at
these ports, and asks no NTP server but that of ``--ntp``.
"""

import argparse
import gc
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from twinlink_results import system

from twinlink.errors import ConfigurationError, TransportMissing
from twinlink.process.guarded_thread import GuardedThread
from twinlink.process.ip_address import bracketed, is_address, is_own
from twinlink.process.resolver import listen_addresses
from twinlink.transports import Endpoint

from . import loss_injector, send_modes
from .channels import SUBJECTS, Channel, PeerLost, channel
from .request_bounds import MAX_FILE_OCTETS, RequestBounds
from .row_buffer import PART_OCTETS, ReceivedRows, SentRows, encode
from .usage import Usage

if TYPE_CHECKING:
    from .mgen_side import MgenSide

LATE_S = 1.0


class Worker:
    """Executes commands of a `worker_handle.WorkerHandle`, one at a time; sending has a thread, so that it can be
    cancelled.
    """

    def __init__(self, say: Callable[[dict[str, Any]], None], bounds: RequestBounds | None = None) -> None:
        self._say = say
        self._bounds = bounds
        self._channel: Channel | None = None
        self._usage: Usage | None = None
        self._cancelled = threading.Event()
        self._sending = False
        self._counted: dict[str, int] | None = None
        self._mgen: MgenSide | None = None
        self._does: dict[str, Callable[..., dict[str, Any]]] = {
            "system": self._system,
            "ntp": self._ntp,
            "load": self._load,
            "open": self._open,
            "reflect": self._reflect,
            "mark": self._mark,
            "finish": self._finish,
            "cancel": self._cancel,
            "mgen-listen": self._mgen_listen,
            "mgen-finish": self._mgen_finish,
            "close": self._close,
        }
        self._sends: dict[str, Callable[..., dict[str, Any]]] = {
            "warm": self._warm,
            "send": self._send,
            "idle": self._idle,
            "mgen-send": self._mgen_send,
        }

    def take(self, line: str) -> None:
        """Execute the command in a line, and answer."""
        try:
            command = json.loads(line)
            number, what = command.pop("id"), str(command.pop("do"))
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            self._say({"id": None, "error": "a line that is no command", "kind": "failed"})
            return
        if what in self._sends:
            if self._sending:
                self._say({"id": number, "error": "it is sending: let it end, or cancel it", "kind": "failed"})
                return
            self._cancelled.clear()
            self._sending = True
            GuardedThread(partial(self._do, number, self._sends[what], command, True), f"worker-{what}").start()
        elif what in self._does:
            self._do(number, self._does[what], command)
        else:
            self._say({"id": number, "error": f"no command is called {what!r}", "kind": "failed"})

    def _do(
        self, number: int, body: Callable[..., dict[str, Any]], arguments: dict[str, Any], sends: bool = False
    ) -> None:
        try:
            if self._bounds is not None:
                self._bounds.check(arguments)
            answer = body(number, **arguments)
        except PeerLost as error:
            answer = {"error": str(error), "kind": "peer lost"}
        except (ConfigurationError, TransportMissing) as error:
            answer = {"error": str(error), "kind": "unusable"}
        except Exception as error:  # any error ends the cell, not the sweep
            answer = {"error": f"{type(error).__name__}: {error}", "kind": "failed"}
        if sends:
            self._sending = False  # before the answer, which the next command may follow at once
        self._say({"id": number, **answer})

    def _system(self, _number: int) -> dict[str, Any]:
        return {"system": system.facts()}

    def _load(self, _number: int) -> dict[str, Any]:
        from twinlink_results import load

        return {"load": load.sample()}

    def _ntp(self, _number: int, server: str) -> dict[str, Any]:
        from twinlink.appkit import ntp

        if self._bounds is not None and (reason := self._bounds.refuses_ntp(server)):
            return {"ntp": {"server": server, "error": reason}}
        return {"ntp": ntp.view(server)}

    def _open(
        self,
        _number: int,
        subject: str,
        listening: bool,
        host: str,
        port: int,
        node: str,
        options: dict[str, Any] | None = None,
        drop_every: int = 0,
    ) -> dict[str, Any]:
        if self._bounds is not None:
            self._bounds.check_open(subject, listening, port, options or {})
            host = _listens_on(self._bounds.host, host)
        self.close()
        made = channel(subject, Endpoint(host, port), listening, node, options)
        made.drop_every = drop_every
        made.open()
        self._channel = made
        return {"options": made.settings(), "broker_pid": made.broker_pid}

    @property
    def _open_channel(self) -> Channel:
        if self._channel is None:
            raise ConfigurationError("nothing is open here")
        return self._channel

    # The sender

    def _warm(self, _number: int, octets: int, count: int, timeout_s: float) -> dict[str, Any]:
        """Wait for the other end, then exchange ``count`` messages without recording them."""
        own = self._open_channel
        own.rows = SentRows(0, 0)
        own.wait_ready(timeout_s)
        own.load(octets)
        send_modes.closed(own, count, timeout_s, self._cancelled)
        gc.collect()
        gc.freeze()
        return {"next": own.next}

    def _idle(self, _number: int, octets: int, count: int, interval_s: float, timeout_s: float) -> dict[str, Any]:
        """RTT of an idle path: with pauses between the messages."""
        own = self._open_channel
        own.load(octets)
        own.rows = rows = SentRows(own.next, count)
        for _ in range(count):
            if self._cancelled.wait(interval_s):
                break
            own.exchange(timeout_s)
        return {"rtt_ns": rows.round_trips()}

    def _send(
        self, number: int, mode: str, octets: int, count: int, timeout_s: float, rate_hz: float | None = None
    ) -> dict[str, Any]:
        own = self._open_channel
        own.load(octets)
        own.rows = rows = SentRows(own.next, count)
        counted = own.counters()
        usage = Usage(own.broker_pid)
        started_ns, started = time.time_ns(), time.monotonic_ns()
        trouble: PeerLost | None = None
        try:
            if mode == "closed":
                send_modes.closed(own, count, timeout_s, self._cancelled)
            elif rate_hz is not None:
                send_modes.paced(own, count, rate_hz, timeout_s, self._cancelled)
            else:
                send_modes.flood(own, count, timeout_s, self._cancelled)
        except PeerLost as error:
            trouble = error
        elapsed_ns = time.monotonic_ns() - started
        used = usage.report()
        self._send_parts(number, rows.parts())
        return {
            "first": rows.first,
            "sent": rows.used,
            "answered": rows.answers,
            "dropped": loss_injector.count(rows.first, rows.first + rows.used, own.drop_every),
            "started_ns": started_ns,
            "elapsed_ns": elapsed_ns,
            "cancelled": self._cancelled.is_set(),
            "usage": used,
            "counters": _since(own.counters(), counted),
            **({"trouble": str(trouble)} if trouble else {}),
        }

    def _cancel(self, _number: int) -> dict[str, Any]:
        self._cancelled.set()
        return {}

    # The reflector

    def _reflect(self, _number: int, octets: int, count: int, bulk: bool = False) -> dict[str, Any]:
        own = self._open_channel
        own.stop()
        own.received = ReceivedRows(count)
        own.reflect(octets, bulk)
        return {}

    def _mark(self, _number: int) -> dict[str, Any]:
        own = self._open_channel
        gc.collect()
        gc.freeze()
        self._counted = own.counters()
        self._usage = Usage(own.broker_pid)
        return {}

    def _finish(self, number: int, first: int, expected: int) -> dict[str, Any]:
        """Return the rows of arrivals; a link acknowledges before delivery, so the last may take a moment."""
        own = self._open_channel
        end = time.monotonic() + LATE_S
        while own.receives and own.received.since(first) < expected and time.monotonic() < end:
            time.sleep(0.001)
        used = self._usage.report() if self._usage else None
        own.stop()
        if own.received.left_out:
            raise ConfigurationError(f"{own.received.left_out} messages more arrived than were announced")
        self._send_parts(number, own.received.parts())
        return {"usage": used, "counters": _since(own.counters(), self._counted)}

    # Where MGEN is the source

    def _mgen_side(self) -> "MgenSide":
        from .channels.link import LinkChannel
        from .mgen_side import MgenSide

        own = self._open_channel
        if not isinstance(own, LinkChannel):
            raise ConfigurationError("MGEN's messages are carried by twinlink only")
        if self._mgen is None:
            self._mgen = MgenSide(own.link)
        return self._mgen

    def _mgen_listen(self, _number: int, octets: int) -> dict[str, Any]:
        self._mgen_side().listen(octets)
        return {}

    def _mgen_send(self, number: int, octets: int, count: int, rate_hz: float, timeout_s: float) -> dict[str, Any]:
        own = self._open_channel
        side, counted, usage = self._mgen_side(), own.counters(), Usage(own.broker_pid)
        started_ns, started = time.time_ns(), time.monotonic_ns()
        done = side.send(octets, count, rate_hz, timeout_s)
        elapsed_ns, used = time.monotonic_ns() - started, usage.report()
        self._send_parts(number, {name: done.pop(name) for name in ("log", "notes")})
        times = {"started_ns": started_ns, "elapsed_ns": elapsed_ns}
        return {**done, **times, "usage": used, "counters": _since(own.counters(), counted)}

    def _mgen_finish(self, number: int, expected: int, quiet_s: float) -> dict[str, Any]:
        own = self._open_channel
        done = self._mgen_side().heard(expected, quiet_s)
        used = self._usage.report() if self._usage else None
        self._send_parts(number, {name: done.pop(name) for name in ("log", "notes")})
        return {**done, "usage": used, "counters": _since(own.counters(), self._counted)}

    def _send_parts(self, number: int, parts: dict[str, bytes]) -> None:
        for name, octets in parts.items():
            for first in range(0, len(octets), PART_OCTETS):
                self._say({"id": number, "part": f"{name}_rows", "rows": encode(octets[first : first + PART_OCTETS])})

    def _close(self, _number: int) -> dict[str, Any]:
        self.close()
        return {}

    def close(self) -> None:
        """Close the channel and MGEN's processes."""
        self._cancelled.set()
        if self._mgen is not None:
            self._mgen.close()
            self._mgen = None
        if self._channel is not None:
            made, self._channel = self._channel, None
            made.stop()
            made.close()


def _listens_on(own: str, asked: str) -> str:
    """Where to listen: at the address that the sweep connects to, as far as the pong listens there.

    Most libraries take one address only, and ``::`` for IPv6 alone.  Raises OSError: ``own`` is not resolved.
    """
    allowed = listen_addresses(own)
    place = asked.strip("[]")
    if place in allowed or (allowed[0] in ("::", "0.0.0.0") and is_address(place) and is_own(place)):
        return bracketed(place)
    if allowed[0] == "::" and is_address(place) and ":" not in place:  # another host translates the address
        return "0.0.0.0"
    return bracketed(allowed[0])


def _since(now: dict[str, int] | None, before: dict[str, int] | None) -> dict[str, int] | None:
    if now is None:
        return None
    return {name: value - (before or {}).get(name, 0) for name, value in now.items()}


def main() -> None:
    """Run until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen-only", metavar="HOST:FIRST-LAST")
    parser.add_argument("--ntp", metavar="HOST[:PORT]")
    given = parser.parse_args()
    bounds = None
    if given.listen_only:
        host, _, ports = given.listen_only.rpartition(":")
        first, _, last = ports.partition("-")
        bounds = RequestBounds(host, int(first), int(last), given.ntp)
        resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_OCTETS, MAX_FILE_OCTETS))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the sweep decides
    out, lock = os.dup(1), threading.Lock()
    os.dup2(2, 1)  # output of a library must not be mistaken for an answer

    def say(answer: dict[str, Any]) -> None:
        line = json.dumps(answer).encode() + b"\n"
        with lock:
            while line:
                line = line[os.write(out, line) :]

    worker = Worker(say, bounds)
    try:
        say({"id": 0, "subjects": list(SUBJECTS)})
        for line in sys.stdin:
            worker.take(line)
        worker.close()
    except BrokenPipeError:
        pass
    sys.stdout.flush()
    os._exit(0)  # a library's threads must not keep the process alive


if __name__ == "__main__":
    main()
