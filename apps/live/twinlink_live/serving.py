"""Serves the page of a view, for the command and for programs that show their own link."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.resources import as_file, files
from ipaddress import ip_address
from typing import TYPE_CHECKING

import twinlink
from twinlink.appkit import convert
from twinlink.appkit.options import Container
from twinlink.errors import ConfigurationError

if TYPE_CHECKING:
    from .view import Source, View

HTTP_PORT = 8080
ADDRESS = convert.HttpAddress("127.0.0.1", HTTP_PORT)
TOKEN_OCTETS = 24


def add_option(parser: Container) -> None:
    """Declare ``--live`` of a program that serves the page itself."""
    parser.add_argument(
        "--live",
        nargs="?",
        type=convert.http_address,
        const=ADDRESS,
        metavar="HOST:PORT",
        help=f"show the link of this side in a browser; {ADDRESS} if no address follows (docs/live.md)",
    )


def plan(address: convert.HttpAddress | None) -> list[str]:
    """The line about ``--live`` for ``--check``."""
    return ["live: not served (--live)" if address is None else f"live: a page at http://{address}"]


@contextmanager
def serving(
    address: convert.HttpAddress | None, link: twinlink.Link, tell: Callable[[str], object]
) -> "Iterator[View | None]":
    """Show a program's own link inside a ``with`` statement, both directions; without an address, do nothing.

    Args:
        address: of ``--live``; one beyond loopback has a token in the address of the page, made anew each time.
        link: what is shown.
        tell: called once with the page's address.

    Raises:
        TransportMissing: the extra ``websocket`` is not installed.
        TransportError: the address cannot be listened at.
    """
    if address is None:
        yield None
        return
    from .own_link import OwnLink  # programs that show nothing do without numpy

    with serving_source(address, partial(OwnLink, link), tell) as view:
        yield view


@contextmanager
def serving_source(
    address: convert.HttpAddress, source: "Callable[[], Source]", tell: Callable[[str], object]
) -> "Iterator[View]":
    """As `serving`, of what ``source`` makes once the page can be served."""
    from .view import View

    token = "" if _is_loopback(address.host) else secrets.token_urlsafe(TOKEN_OCTETS)
    with (
        as_file(files("twinlink_live") / "static") as folder,
        twinlink.open(
            "websocket",
            listen=f"tcp/{address}",
            node="live-view",
            identity="",  # what the browser sees is protected by the loopback interface, or by the token
            pages=str(folder),
            token=token,
            origins="*" if token else f"http://{address},http://localhost:{address.port}",
        ) as pages,
    ):
        view = View(source(), pages)
        view.start()
        try:
            tell(_told(address, token))
            yield view
        finally:
            view.stop()


def refuse_beyond_loopback(address: convert.HttpAddress | None) -> None:
    """Raises ConfigurationError: for a program that has no place to tell a token."""
    if address is not None and not _is_loopback(address.host):
        port = address.port
        raise ConfigurationError(
            f"--live {address}: the page of the demo is for this host: give 127.0.0.1:{port}, and forward the port to "
            f"look from elsewhere (ssh -L {port}:127.0.0.1:{port} HOST)"
        )


def _told(address: convert.HttpAddress, token: str) -> str:
    if not token:
        return f"open http://{address} in a browser"
    return (
        f"open http://{address}/{token}/ in a browser, with this host's name in place of {address.host} elsewhere; "
        "all that have this address see the link, and plain HTTP is not encrypted"
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
