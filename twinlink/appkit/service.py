"""Options of a program that a supervisor runs: ``--check`` says what the program would do, ``--http`` how it does."""

import argparse
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from twinlink import options as link_options
from twinlink.appkit import convert, linking
from twinlink.appkit.console import DONE, Output, explain
from twinlink.appkit.journal import Journal
from twinlink.errors import ConfigurationError, TwinlinkError

from .pulse import Pulse

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from twinlink.appkit.convert import HttpAddress

MIB = 1024 * 1024


def add_http_option(parser: argparse._ActionsContainer) -> None:
    """Declare ``--http``."""
    parser.add_argument(
        "--http",
        type=convert.http_address,
        metavar="HOST:PORT",
        help="serve /healthz, /readyz and /metrics there (docs/monitoring.md); 9464 is the usual port",
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare ``--http`` and ``--check``."""
    group = parser.add_argument_group("for supervisors")
    add_http_option(group)
    group.add_argument(
        "--check", action="store_true", help="say what would be done, open nothing, and end: 0, or 3 and the reason"
    )


def check(plan: Callable[[], Sequence[str]]) -> int:
    """For ``--check``: print the plan, a line each; returns the exit code.

    Args:
        plan: makes the lines; raises what is wrong.

    Raises:
        ConfigurationError: whatever is wrong, so that the exit code is 3.
    """
    try:
        lines = plan()
    except TwinlinkError as error:
        raise ConfigurationError(str(error)) from error
    except OSError as error:
        raise ConfigurationError(explain(error)) from error
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{error.name} is not installed; `pip install 'twinlink[demo]'` brings it") from error
    Output(as_json=False).emit({}, "\n".join(lines))
    return DONE


def plan_of_link(given: argparse.Namespace, sends: Sequence[str], receives: Sequence[str], other: str) -> list[str]:
    """The lines about the link: where it goes, and what memory it may take.  Raises ConfigurationError and the like.

    Args:
        given: with the options of `linking.add_link_options`.
        sends, receives: the flows.
        other: what is at the other end.
    """
    transport = linking.check_link(given)
    first = transport.endpoint.port
    ports = f"port {first}" if transport.ports == 1 else f"ports {first} to {first + transport.ports - 1}"
    own = dict(given.option or [])
    retention, window = own.get("retention", link_options.RETENTION), own.get("window", link_options.WINDOW)
    return [
        f"link: {linking.endpoint(given)} ({ports}) as {given.node}",
        f"memory of the link: {_each(sends, retention)} that the {other} has not acknowledged (retention); "
        f"{_each(receives, window)} from each {other} that has not been read (window)",
    ]


def _each(flows: Sequence[str], octets: int) -> str:
    each = "each " if len(flows) > 1 else ""
    return f"on {' and '.join(flows)} {each}at most {octets / MIB:g} MiB"


def plan_of_files(*places: tuple[str, Path | None]) -> list[str]:
    """A line for each option that names a file or folder to write.

    Args:
        places: option, such as ``log`` or, where it is a folder, ``records/``, and its path; None: it was not given.

    Raises:
        OSError: one cannot be made or written; a folder that is named before is there for what comes after.
    """
    lines, made = [], set()
    for option, path in places:
        if path is not None:
            folder = option.endswith("/")
            if path.parent not in made:
                _check_writable(path, folder)
            if folder:
                made.add(path)
            lines.append(f"{option.rstrip('/')}: {path}")
    return lines


def _check_writable(path: Path, folder: bool) -> None:
    """What is there must be of the right kind and writable; else the folder, at any depth, that it would be made in."""
    place = path
    while not place.exists() and (folder or place == path):
        place = place.parent
    if not place.exists():
        number = errno.ENOENT
    elif place.is_dir() is not (folder or place != path):
        number = errno.EISDIR if place.is_dir() else errno.ENOTDIR
    elif not os.access(place, os.W_OK, effective_ids=True):
        number = errno.EACCES
    else:
        return
    raise OSError(number, os.strerror(number), str(place))


def plan_of_http(given: argparse.Namespace) -> list[str]:
    """The line about ``--http``.  Raises MetricsMissing where prometheus_client is not installed."""
    if given.http is None:
        return ["http: not served (--http HOST:PORT)"]
    import twinlink.metrics  # noqa: F401  (as in `serving`)

    return [f"http: {given.http} with /healthz, /readyz and /metrics"]


def told_by(journal: Journal) -> "Callable[[str, HttpAddress], object]":
    """What `serving` tells becomes an event of the journal."""
    return lambda text, address: journal.event("http", text, http=str(address))


@contextmanager
def serving(
    address: "HttpAddress | None",
    pulse: Pulse,
    reasons: Callable[[], list[str]],
    collectors: "Callable[[], Iterable[Collector]]",
    tell: "Callable[[str, HttpAddress], object]",
) -> Iterator[None]:
    """Serves what ``--http`` asks for inside a ``with`` statement; without an address it does, and imports, nothing.

    Args:
        address: of ``--http``.
        pulse, reasons: of `twinlink.appkit.http.Server`.
        collectors: makes the collectors of metrics.
        tell: told once what is served, and the address with the port that was taken.

    Raises:
        MetricsMissing: prometheus_client is not installed.
        TransportError: nothing can be served there.
    """
    if address is None:
        yield
        return
    import twinlink.metrics  # noqa: F401  (says what to install where that is missing)

    from .http import Server

    with Server(address, pulse, reasons, collectors()) as server:
        tell(f"serves /healthz, /readyz and /metrics at http://{server.address}", server.address)
        yield
