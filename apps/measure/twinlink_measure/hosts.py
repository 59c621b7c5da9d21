"""Two real hosts: this one is the Real World; the Digital Twin is where `twinlink pong` listens."""

import logging
import os
import time
from typing import Self

import twinlink
from twinlink.errors import AuthenticationError, LinkClosed, PeerTimeout
from twinlink.process.guarded_thread import GuardedThread
from twinlink.process.ip_address import bracketed, is_address
from twinlink.process.resolver import accepting_addresses, addresses
from twinlink.transports import Endpoint, transport_name

from .remote import PORT_OFFSET, TOLD, Remote, RemoteWorker
from .setting import DIGITAL_TWIN, REAL_WORLD, HostLost, Pair, Setting, SettingError
from .worker_handle import LOOK_S, START_S, Interrupted, LocalWorker, Stopped, WorkerLost

PATIENCE = 3  # times the timeout, between two rounds: time for a pong to restart


class Hosts(Setting):
    """A link to the pong, which carries the commands for the workers there.

    Args:
        peer: where the pong listens; cells use the ports from `PORT_OFFSET` above.
        transport: the pong's.
        timeout_s: to wait for it.
        stopped: polled while waiting; true ends it.
        identity: folder of this side's identity, for that link; None: that of ``TWINLINK_IDENTITY``, or none.
    """

    name = "hosts"

    def __init__(
        self,
        peer: str,
        transport: str,
        timeout_s: float,
        stopped: Stopped,
        identity: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        self._endpoint = Endpoint.parse(peer)
        self._transport = transport
        self._identity = identity
        self._timeout_s = timeout_s
        self._stopped = stopped
        self._served = False  # whether a worker has ever started at the peer

    def __enter__(self) -> Self:
        transport, connect = transport_name(self._transport), str(self._endpoint)
        self._link = twinlink.open(transport, connect=connect, identity=self._identity)
        try:
            self._remote = Remote(self._link)
            error = self._meets()
            if isinstance(error, AuthenticationError):
                raise error
            if error is not None:
                raise PeerTimeout(f"{error} (does `twinlink pong` run there?)")
        except Interrupted:
            self._link.close()
            raise KeyboardInterrupt from None  # nothing has been measured
        except BaseException:
            self._link.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger("twinlink")
        logger.addFilter(_is_not_of_ours)
        try:
            self._link.close()
        finally:
            logger.removeFilter(_is_not_of_ours)

    def _meets(self) -> PeerTimeout | None:
        """Wait until the pong is up; returns why it is not within the time-out.  Raises Interrupted."""
        ended: list[PeerTimeout] = []

        def wait() -> None:
            try:
                self._link.wait_ready(self._timeout_s)
            except PeerTimeout as error:
                ended.append(error)
            except LinkClosed:  # this side was interrupted
                pass

        waiting = GuardedThread(wait, "sweep-wait-ready")
        waiting.start()
        while waiting.is_alive():
            if self._stopped():
                raise Interrupted
            waiting.join(LOOK_S)
        return next(iter(ended), None)

    def wait(self, stopped: Stopped) -> None:
        """Return when the pong is up; it may have restarted."""
        end = time.monotonic() + PATIENCE * self._timeout_s
        while not self._remote.up:
            if stopped():
                raise Interrupted
            if time.monotonic() > end:
                raise self._gone(PATIENCE * self._timeout_s)
            time.sleep(LOOK_S)

    def _gone(self, within_s: float) -> HostLost:
        at = self._endpoint
        return HostLost(f"no pong at {at} for {within_s:g} s (does `twinlink pong` still run there?)")

    def start(self) -> Pair:
        """A new worker here, and one at the peer."""
        if self._meets() is not None:  # it may be restarting
            raise self._gone(self._timeout_s)
        at = (self._host(), self._endpoint.port + PORT_OFFSET)
        far = RemoteWorker(DIGITAL_TWIN, self._remote)
        try:
            far.answer(0, max(START_S, self._timeout_s), self._stopped)  # ends early if the pong is lost
        except Interrupted:
            far.end()
            raise
        except WorkerLost as error:
            silent, gone = far.lost is None, not self._remote.up
            far.end()
            if gone:
                raise
            if silent and not self._served:
                raise HostLost(
                    f"{error}: the peer at {self._endpoint} is there, but starts no worker for a sweep; it should be "
                    "`twinlink pong` of this version"
                ) from error
            raise SettingError(str(error)) from error
        self._served = True
        return Pair(LocalWorker(REAL_WORLD), far, at, at)

    def _host(self) -> str:
        """Of several addresses of the peer's name the first at which the pong listens: both sides use that one."""
        host, port = self._endpoint.host, self._endpoint.port
        if is_address(host):
            return host
        try:
            found = addresses(host, self._timeout_s)
        except OSError as error:
            raise HostLost(f"the pong's host {host} does not resolve: {error.strerror or error}") from error
        return bracketed((accepting_addresses(found, port) or found)[0])

    def describe(self) -> dict[str, object]:
        """Endpoint and name of the peer."""
        return {"peer": str(self._endpoint), "peer_node": ", ".join(self._link.peers())}


def _is_not_of_ours(record: logging.LogRecord) -> bool:
    """False for losses of commands to the workers of a pong that died: they are of no interest."""
    return TOLD not in (record.args or ())
