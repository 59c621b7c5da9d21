"""Show a link in a browser: waterfalls, blocks, flows, peers, gaps and events, as they come.

It joins a link as `twinlink list` does: it is a peer like others, and sees what the other side sends.  The page is at
--http.  A browser that falls behind gets the newest, and says so; it holds up nothing.  twinlink-exporter,
twinlink-replay and `twinlink demo` show their own link, both directions of it, with --live.
"""

import argparse
from functools import partial

from twinlink.appkit import convert, linking
from twinlink.appkit.console import DONE, Stop, log
from twinlink.appkit.options import Parser
from twinlink.cli import looking

from . import serving
from .seen_link import SeenLink

_NAME = "twinlink live"
CHECK_S = 1.0
EXAMPLES = """
twinlink live 10.0.0.5                   # then open http://127.0.0.1:8080
twinlink live twin:7447 --transport zenoh --http 127.0.0.1:9000
twinlink live 10.0.0.5 --http 0.0.0.0:8080  # prints an address with a token
twinlink live --listen tcp/0.0.0.0:7447  # in place of the listener
"""


def add_options(parser: Parser) -> None:
    """Declare the options."""
    linking.add_link_options(parser, listens=False, host="a program")
    parser.add_argument(
        "--http",
        type=convert.http_address,
        default=serving.ADDRESS,
        metavar="HOST:PORT",
        help=f"where the page is; default {serving.ADDRESS}.  Beyond loopback, its address has a token",
    )


def run(given: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    with (
        Stop() as stop,
        looking.open_link(given, "live") as link,
        serving.serving_source(
            given.http,
            partial(SeenLink, link),
            lambda text: _tell(f"{linking.endpoint(given)}; {text}, Ctrl-C ends it"),
        ),
    ):
        linking.tell_if_no_peer(link, _tell)
        while not stop.wait(CHECK_S):
            pass
    return DONE


def _tell(text: str) -> None:
    log(_NAME, text)
