"""Options of a program that a supervisor runs: ``--check`` prints a plan, ``--http`` serves health and metrics."""

import argparse
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from twinlink import options as link_options
from twinlink.errors import ConfigurationError, TwinlinkError

from . import convert, linking
from .console import DONE, Output, explain, missing_module
from .formatting import listed
from .journal import Journal
from .options import Container, Parser
from .pulse import Pulse

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from .convert import HttpAddress

_MIB = 1024 * 1024


def add_http_option(parser: Container) -> None:
    """Declare ``--http``."""
    parser.add_argument(
        "--http",
        type=convert.http_address,
        metavar="HOST[:PORT]",
        help="serve /healthz, /readyz and /metrics there (docs/monitoring.md); default port "
        f"{convert.HTTP_PORT}, 0 takes a free one",
    )


def add_options(parser: Parser) -> None:
    """Declare ``--http`` and ``--check``."""
    group = parser.group("for supervisors")
    add_http_option(group)
    group.add_argument(
        "--check", action="store_true", help="print what would be done, open nothing, and exit: 0, or 3 and the reason"
    )


def check(plan: Callable[[], Sequence[str]]) -> int:
    """For ``--check``: print the plan; returns the exit code.

    Args:
        plan: returns the lines, or raises what is wrong.

    Raises:
        ConfigurationError: the plan cannot be carried out; the exit code is then 3.
    """
    try:
        lines = plan()
    except TwinlinkError as error:
        raise ConfigurationError(str(error)) from error
    except OSError as error:
        raise ConfigurationError(explain(error)) from error
    except ModuleNotFoundError as error:
        raise ConfigurationError(missing_module(error)) from error
    Output(as_json=False).emit({}, "\n".join(lines))
    return DONE


def plan_of_link(given: argparse.Namespace, sends: Sequence[str], receives: Sequence[str], other: str) -> list[str]:
    """The lines about the link: its endpoint and the memory that it may use.  Raises as `linking.check_link`.

    Args:
        given: with the options of `linking.add_link_options`.
        sends, receives: the flows.
        other: what the peer is called.
    """
    transport = linking.check_link(given)
    first = transport.endpoint.port
    ports = f"port {first}" if transport.ports == 1 else f"ports {first} to {first + transport.ports - 1}"
    node, identities = given.node, []
    if (own_identity := transport.identity) is not None:
        node, own_keys = own_identity.name, own_identity.identity
        names = ", ".join(sorted(own_identity.names)) or "no peer"
        identities = [f"identity: {own_keys.fingerprint}, expires {own_keys.expiry:%Y-%m-%d}; trusts {names}"]
    own = dict(given.option or [])
    retention, window = own.get("retention", link_options.RETENTION), own.get("window", link_options.WINDOW)
    return [
        f"link: {linking.endpoint(given)} ({ports}) as {node}",
        *identities,
        f"memory of the link: {_each(sends, retention)} that the {other} has not acknowledged (retention); "
        f"{_each(receives, window)} from each {other} that has not been read (window)",
    ]


def _each(flows: Sequence[str], octets: int) -> str:
    each = "each " if len(flows) > 1 else ""
    return f"on {listed(flows)} {each}at most {octets / _MIB:g} MiB"


def plan_of_files(*places: tuple[str, Path | None]) -> list[str]:
    """A line for each option that names a file or folder to write.

    Args:
        places: the option, such as ``log``, or ``records/`` for a folder, and its path, or None if it was not given.

    Raises:
        OSError: a file or folder cannot be written.  Folders named earlier count as existing for later paths.
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
    """Check the kind and permission of what exists, or else of the nearest existing folder above it."""
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
    import twinlink.metrics  # noqa: F401  (raises MetricsMissing)

    return [f"http: {given.http} with /healthz, /readyz and /metrics"]


def told_by(journal: Journal) -> "Callable[[str, HttpAddress], object]":
    """The argument ``tell`` of `serving` that logs to the journal."""
    return lambda text, address: journal.event("http", text, http=str(address))


@contextmanager
def serving(
    address: "HttpAddress | None",
    pulse: Pulse,
    reasons: Callable[[], list[str]],
    collectors: "Callable[[], Iterable[Collector]]",
    tell: "Callable[[str, HttpAddress], object]",
) -> Iterator[None]:
    """Serve HTTP inside a ``with`` statement; without an address, do nothing and import nothing.

    Args:
        address: of ``--http``.
        pulse, reasons: as for `twinlink.appkit.http.Server`.
        collectors: returns the collectors of the metrics.
        tell: called once with a message and the address, which has the port taken.

    Raises:
        MetricsMissing: prometheus_client is not installed.
        TransportError: the address cannot be listened at.
    """
    if address is None:
        yield
        return
    import twinlink.metrics  # noqa: F401  (raises MetricsMissing)

    from .http import Server

    with Server(address, pulse, reasons, collectors()) as server:
        tell(f"serves /healthz, /readyz and /metrics at http://{server.address}", server.address)
        yield
