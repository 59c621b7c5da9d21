"""What can be attached to a link: a recorder, mirrors and states.  All end with it."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from .errors import ConfigurationError
from .runtime import arguments

if TYPE_CHECKING:
    from .identity.watched import WatchedIdentity
    from .mirror import Mirror
    from .recording.options import RecordingOptions
    from .recording.recorder import Recorder
    from .runtime.driver import SessionDriver
    from .state import Change, State
    from .transport_options import TransportName
    from .transports import Transport

MIRROR_QUEUE_OCTETS = 16 * 1024 * 1024
_RECORDED = "node", "transport_name", "endpoint", "listening", "max_payload"  # what a manifest says of a link


class Attachments:
    """Base of a link.  What it imports when it is called, most links do without."""

    if TYPE_CHECKING:
        _driver: SessionDriver
        _transport: Transport
        identity: WatchedIdentity | None
        node: str
        transport_name: str
        stats: Callable[[], Any]
        _check_open: Callable[[], None]

    def __init__(self) -> None:
        self._recorder: Recorder | None = None
        self._mirrors: list[Mirror] = []
        self._states: dict[str, State] = {}
        self._states_lock = threading.Lock()

    def _new_state_locks(self) -> None:
        """In a forked process: a thread that held a lock stayed with the parent."""
        self._states_lock = threading.Lock()
        for state in self._states.values():
            state._lock = threading.Lock()

    def _close_attachments(self) -> None:
        if self._recorder is not None:
            self._recorder.close()
        for mirror in self._mirrors:
            mirror.close()
        for state in list(self._states.values()):
            state._close()

    def state(self, name: str, *, on_change: "Callable[[Change], object] | None" = None) -> "State":
        """Desired and reported values by key, which all sides know (docs/state.md); the same one when asked again.

        Args:
            name: 1 to 57 letters, digits, dots, dashes or underscores; its flow is ``state.`` and that.
            on_change: called with each `Change` that others make, or that time makes, on the thread that receives; it
                must not block.  Without one, `State.receive` and `State.changes` return them.

        Raises:
            ConfigurationError: an argument cannot be used.
            LinkClosed: the link was closed.
        """
        from .state import State, check_name

        self._check_open()
        check_name(name)
        arguments.check_handler("on_change", on_change)
        with self._states_lock:
            state = self._states.get(name)
            if state is None:
                state = self._states[name] = State(self, name)
        if on_change is not None:
            state._set_on_change(on_change)
        return state

    def record(self, path: str | os.PathLike[str], **options: Unpack["RecordingOptions"]) -> "Recorder":
        """Record what this link sends and receives from now on, until the recorder or the link is closed.

        The file is MCAP (docs/recordings.md); `twinlink.recording.RecorderOptions` has the options.  A link has one
        recorder at a time.

        Raises:
            ConfigurationError: an option cannot be used, or the link is being recorded already.
            RecordingMissing: the package mcap is not installed.
            LinkClosed: the link was closed.
            OSError: the file exists, or cannot be written.
        """
        from .recording import Recorder, RecorderOptions

        self._check_open()
        if self._recorder is not None and not self._recorder.closed:
            raise ConfigurationError(f"the link is being recorded to {self._recorder.path}: close that first")
        configuration = {name: getattr(self, name) for name in _RECORDED}
        self._recorder = Recorder(
            self._driver,
            self._transport.internal_errors,
            Path(path),
            RecorderOptions.checked(options),
            configuration,
            self.stats,
        )
        return self._recorder

    def mirror(
        self, listen: str, *, transport: "TransportName | None" = None, queue_octets: int = MIRROR_QUEUE_OCTETS
    ) -> "Mirror":
        """Show observers what this link sends and receives, at an endpoint of their own (docs/observers.md).

        An observer is any program that connects there; with an identity, one whose role is ``observer``.  It delays
        nothing: what it is too slow for is left out.  Without an observer nothing is done.  The mirror ends with the
        link.

        Args:
            listen: endpoint for observers, as of `twinlink.open`.
            transport: for observers; the link's own by default.
            queue_octets: that may wait to be shown; what comes beyond is left out, and counted.

        Raises:
            ConfigurationError, TransportError: as `twinlink.open`.
            LinkClosed: the link was closed.
        """
        from .mirror import open_mirror

        self._check_open()
        arguments.check_octets("queue_octets", queue_octets)
        identity, name = str(self.identity.identity.folder) if self.identity else "", transport or self.transport_name
        observed = self._driver, self._transport.internal_errors
        self._mirrors.append(
            open_mirror(cast(Any, type(self)), name, listen, self.node, identity, *observed, queue_octets)
        )
        return self._mirrors[-1]
