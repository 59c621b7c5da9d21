"""Show a link in a browser: waterfalls, flows, peers, gaps and events, as they come.

It joins a link as `twinlink list` does: it is a peer like others, and sees what the other side sends.  The page is at
--http, for this host alone: from elsewhere, forward the port (`ssh -L 8080:127.0.0.1:8080 HOST`).  A browser that falls
behind gets the newest, and says so; it holds up nothing.
"""

import argparse
from functools import partial
from importlib.resources import as_file, files
from ipaddress import ip_address

import twinlink
from twinlink.appkit import convert, linking
from twinlink.appkit.console import DONE, Stop, log
from twinlink.appkit.options import Parser
from twinlink.cli import looking
from twinlink.errors import ConfigurationError

from .view import View

_NAME = "twinlink live"
HTTP_PORT = 8080
CHECK_S = 1.0
EXAMPLES = """
twinlink live 10.0.0.5                   # then open http://127.0.0.1:8080
twinlink live twin:7447 --transport zenoh --http 127.0.0.1:9000
twinlink live --listen tcp/0.0.0.0:7447  # in place of the listener
"""


def add_options(parser: Parser) -> None:
    """Declare the options."""
    linking.add_link_options(parser, listens=False, host="a program")
    parser.add_argument(
        "--http",
        type=convert.http_address,
        default=convert.HttpAddress("127.0.0.1", HTTP_PORT),
        metavar="HOST:PORT",
        help=f"where the page is, on this host; default 127.0.0.1:{HTTP_PORT}",
    )


def run(given: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    host, port = given.http
    if not _is_loopback(host):
        raise ConfigurationError(
            f"--http {given.http}: the page has no password, so only this host may open it: give 127.0.0.1:{port}, and "
            f"forward the port to look from elsewhere (ssh -L {port}:127.0.0.1:{port} HOST)"
        )
    with (
        Stop() as stop,
        as_file(files("twinlink_live") / "static") as folder,
        looking.open_link(given, "live") as link,
        twinlink.open(
            "websocket",
            listen=f"tcp/{given.http}",
            node="live-view",
            identity="",  # what the browser sees is protected by the loopback interface
            pages=str(folder),
            origins=f"http://{given.http},http://localhost:{port}",
        ) as pages,
    ):
        view = View(link, pages)
        view.start()
        try:
            log(_NAME, f"{linking.endpoint(given)}; open http://{given.http} in a browser, Ctrl-C ends it")
            linking.tell_if_no_peer(link, partial(log, _NAME))
            while not stop.wait(CHECK_S):
                pass
        finally:
            view.stop()
    return DONE


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
