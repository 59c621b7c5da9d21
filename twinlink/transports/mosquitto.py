"""A private mosquitto broker, which ends with the program that started it.

It uses no files of the system: its configuration is in a temporary directory, and all messages are in memory.  A shell
holds a pipe to the program; when that closes, by `stop` or because the program was killed, the broker ends.
"""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import TransportError
from ..process.ports import HOST, free_ports
from ..process.resolver import listen_addresses
from .base import Endpoint, advice

LOG_OCTETS = 256 * 1024  # of its log, read at a time; a longer log is truncated once it was read
START_S = 5.0  # it takes 0.01 s, on a busy machine longer
STOP_S = 5.0  # likewise; its port is free when it has ended
LOOK_S = 0.002
LEAST_KEEPALIVE_S = 10  # that mosquitto takes as a limit
SBIN = "/usr/sbin:/usr/local/sbin:/sbin"  # where it is installed, which is seldom on a user's PATH
RUNNING = re.compile(r"mosquitto version \S+ running")
FREE_PORT_TRIES = 3  # another program may take a free port before mosquitto does

# The broker's process is a child of this shell, which prints its process id, waits for it, and returns its exit code.
LIFELINE = """
exec 3<&0 </dev/null
ulimit -S -n "$(ulimit -H -n)" 2>/dev/null
directory=$1; shift
"$@" >&2 3<&- & broker=$!
echo "$broker"; exec >&2
(read -r _ <&3; rm -r "$directory"; kill -9 "$broker") & lifeline=$!
exec 3<&-
wait "$broker"; status=$?
kill "$lifeline"; wait
exit "$status"
"""

# 0 means no limit.  The links' windows bound messages in flight; a limit here would drop silently.
# max_packet_size is checked before memory is allocated for a packet.
CONFIGURATION = """
per_listener_settings true
{user}
{listeners}
set_tcp_nodelay {no_delay}
persistence false
max_inflight_messages 0
max_queued_messages 0
max_packet_size {max_packet}
sys_interval 0
connection_messages {log_connections}
{limits}
log_timestamp false
log_dest stderr
log_type error
log_type warning
log_type notice
log_type information
"""


@dataclass(frozen=True)
class BrokerLimits:
    """What strangers may take of a broker: what its guard (`mqtt_broker_guard`) cannot see, mosquitto limits.

    Attributes:
        connections: on each of its addresses.
        keepalive_s: a client that is silent for 1.5 times as long is disconnected, whatever it asks for.
        queued_octets: of a client with QoS 1 or 2: in flight, and as many that wait, also while it is away and keeps
            its session.  The link retransmits what is dropped beyond.
        memory_octets: the last resort, before the system ends programs.
    """

    connections: int
    keepalive_s: int
    queued_octets: int = 64 * 1024 * 1024
    memory_octets: int = 2 * 1024 * 1024 * 1024

    @property
    def lines(self) -> str:
        """For the configuration.  Retained messages would stay for good, and no link needs one."""
        return (
            f"max_keepalive {max(self.keepalive_s, LEAST_KEEPALIVE_S)}\n"
            f"max_inflight_bytes {self.queued_octets}\nmax_queued_bytes {self.queued_octets}\n"
            f"memory_limit {self.memory_octets}\nretain_available false"
        )


class Mosquitto:
    """One mosquitto process, 2.0 or later.

    Attributes:
        endpoint: where it listens.
        pid: of the broker's process, as in ``/proc/<pid>/stat`` (CPU) and ``/proc/<pid>/status`` (memory).
    """

    def __init__(
        self,
        endpoint: Endpoint | None = None,
        *,
        max_packet: int = 17 * 1024 * 1024,
        limits: BrokerLimits | None = None,
        no_delay: bool = True,
        prefix: Sequence[str] = (),
        security: Callable[[Path], str] | None = None,
    ) -> None:
        """Start it; returns when it accepts connections.

        Args:
            endpoint: where to listen; a free port of 127.0.0.1 if None.
            max_packet: octets of the longest MQTT packet that it accepts; a client that sends more is disconnected.
            limits: of what strangers may take; with them it logs connections.  None: there are no strangers.
            no_delay: TCP_NODELAY of its connections.
            security: writes files into a folder, and returns the lines for each listener; None: any client may connect.
            prefix: a command that executes the one that follows, such as ``("ip", "netns", "exec", "NAME")``.

        Raises:
            TransportError: it is not installed, or does not start; the message says why.
        """
        self._security = security
        self._logged = 0  # octets of its log that `take_log` has returned
        for attempt in range(FREE_PORT_TRIES):
            self.endpoint = endpoint or Endpoint(HOST, free_ports())
            try:
                self._start(max_packet, limits, no_delay, prefix)
                break
            except TransportError as error:
                if endpoint or attempt == FREE_PORT_TRIES - 1 or "in use" not in str(error):
                    raise
            except OSError as error:
                folder = "; TMPDIR names a folder for temporary files" if isinstance(error, FileNotFoundError) else ""
                raise TransportError(f"mosquitto cannot be started: {error}{folder}") from error

    def _start(self, max_packet: int, limits: BrokerLimits | None, no_delay: bool, prefix: Sequence[str]) -> None:
        binary = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:{SBIN}")
        if binary is None:
            raise TransportError(
                "mosquitto is not installed: a broker of one's own needs it (Debian: apt install mosquitto); "
                "or use one that is already there, with the option private_broker=False on the listening side"
            )
        self._directory = Path(tempfile.mkdtemp(prefix="twinlink-mosquitto-"))
        try:
            configuration = self._directory / "mosquitto.conf"
            security = self._security(self._directory) if self._security else "allow_anonymous true"
            each = f"max_connections {limits.connections if limits is not None else -1}\n{security}"
            configuration.write_text(
                CONFIGURATION.format(
                    # Started by root, mosquitto would become a user that cannot read the key.
                    user="user root" if self._security else "",
                    listeners=_listeners(self.endpoint, each),
                    max_packet=max_packet,
                    no_delay=str(no_delay).lower(),
                    log_connections=str(limits is not None).lower(),
                    limits=limits.lines if limits is not None else "max_inflight_bytes 0\nmax_queued_bytes 0",
                ),
                errors="surrogateescape",  # names of files are any octets
            )
            self._log = (self._directory / "log").open("a+b")
            arguments = [str(self._directory), *prefix, binary, "-c", str(configuration)]
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", LIFELINE, "twinlink-mosquitto", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                start_new_session=True,  # Ctrl-C is for the program, which says goodbye before the broker ends
            )
            assert self._shell.stdout
            with self._shell.stdout as told:
                self.pid = int(told.readline())
            self._wait_until_it_runs()
        except BaseException:
            self.stop()
            raise

    def _wait_until_it_runs(self) -> None:
        deadline = time.monotonic() + START_S
        while not RUNNING.search(self.log()):
            if self.running and time.monotonic() < deadline:
                time.sleep(LOOK_S)
                continue
            errors = re.findall(r"Error(?: creating listener)?: (.*?)\.?$", self.log(), re.MULTILINE)
            reason = "; ".join(errors) or f"it does not begin within {START_S:g} s: {self.log().strip()}"
            raise TransportError(f"mosquitto cannot listen on {self.endpoint}: {reason}{advice(reason)}")

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self._shell.poll() is None

    def log(self) -> str:
        """The first 100,000 octets of its log: errors and warnings, and with ``limits`` also connections."""
        return os.pread(self._log.fileno(), 100_000, 0).decode(errors="replace")

    def take_log(self) -> str:
        """The whole lines that it has logged since the last call.  A log beyond `LOG_OCTETS` is truncated."""
        try:
            octets = os.pread(self._log.fileno(), LOG_OCTETS, self._logged)
        except ValueError:  # it was stopped
            return ""
        lines = octets[: octets.rfind(b"\n") + 1]
        self._logged += len(lines)
        if self._logged > LOG_OCTETS and lines == octets:
            self._log.truncate(0)
            self._logged = 0
        return lines.decode(errors="replace")

    def stop(self) -> None:
        """End it at once; undelivered messages are lost.  A second call does nothing."""
        if hasattr(self, "_shell"):
            assert self._shell.stdin
            self._shell.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._shell.wait(STOP_S)
            self._log.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def _listeners(endpoint: Endpoint, settings: str) -> str:
    """One with these settings for each address of the host.

    mosquitto takes ``::`` for IPv6 only, and no address for both families.
    """
    try:
        hosts = listen_addresses(endpoint.host)
    except OSError as error:
        raise TransportError(f"mosquitto cannot listen on {endpoint}: {error.strerror or error}") from error
    hosts = ["" if host == "::" else host for host in hosts]
    return "\n".join(f"listener {endpoint.port} {host}\n{settings}" for host in hosts)
