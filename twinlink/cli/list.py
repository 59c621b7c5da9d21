"""List who is on a link, and the flows: rate, goodput, age and loss, as they are seen from here.

It needs nothing at the other side but a program that uses twinlink.  What a listener sends reaches every connector, and
what a connector sends only the listener: so a program that connects, as this one does, sees what the listener sends.
The last line says how many peers there are whose messages are not seen.

While it looks it is a peer like others: it counts for `wait_ready`, and acknowledges what it receives.
"""

import argparse

from ..appkit import convert, linking
from ..appkit.console import DONE, NOT_MET, Output, Stop, log
from ..appkit.options import Parser
from . import known_flows, looking
from .observer import Observer

_NAME = "twinlink list"
EXAMPLES = """
twinlink list 10.0.0.5                   # looks for 2 s
twinlink list twin:7447 --transport zenoh --time 10
twinlink list --listen tcp/0.0.0.0:7447  # in place of the listener
twinlink list 10.0.0.5 --json            # for a script
"""


def add_options(parser: Parser) -> None:
    """Declare the options."""
    linking.add_link_options(parser, listens=False, host="a program")
    parser.add_argument(
        "--time", type=convert.above_0, default=2.0, metavar="S", help="how long to look, which the rates are of, in s"
    )
    linking.add_timeout_option(parser, "wait for a peer so many seconds")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(given: argparse.Namespace) -> int:
    """Look, and print what was seen; 1 if no peer is there."""
    output = Output(given.json)
    with Stop() as stop, looking.open_link(given, "list") as link:
        observer = Observer(link)
        linking.wait_for_peer(link, stop, given, _NAME, None)
        observer.sample()  # the rates are of the time from now on
        stop.wait(given.time)
        record = observer.sample()
        listening = link.listening
    known_flows.remember(observer.flows)
    output.emit(
        {**record, "type": "summary", "endpoint": link.endpoint, "uncounted": observer.uncounted},
        f"{looking.tables(record)}\n\n{looking.seen_from_here(listening, record)}",
    )
    if observer.uncounted:
        log(_NAME, f"{observer.uncounted} messages of further flows are not in the table")
    return DONE if record["peers"] else NOT_MET
