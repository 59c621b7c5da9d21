"""Answer `twinlink ping`: every message on the flow is acknowledged by the link, from any number of peers.

When it listens, it also takes the other side of `twinlink sweep --peer`: it starts processes that listen at the ports
from 10 above its own during the measurement.
"""

import argparse
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol

from twinlink import Link
from twinlink.message import Message

from ..appkit import convert, linking, service
from ..appkit.console import DONE, NOT_MET, Output, Stop, log
from ..appkit.options import Parser
from ..appkit.pulse import Pulse

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

_NAME = "twinlink pong"
_WORKERS = "twinlink.workers"  # entry points: what starts an installed application's workers for the peers of a link
EXAMPLES = """
twinlink pong                        # at tcp/0.0.0.0:7447, over ZeroMQ
twinlink pong --transport zenoh --listen tcp/10.0.0.5:7447
twinlink pong --ntp ntp.example.org  # which a sweep may have it ask
twinlink pong --http 127.0.0.1:9464  # with metrics, also for twinlink top
"""


def add_options(parser: Parser) -> None:
    """Declare the options."""
    linking.add_options(parser, listens=True, flow="ping")
    linking.add_mirror_option(parser)
    service.add_http_option(parser)
    parser.add_argument(
        "--ntp",
        type=convert.ntp_server,
        metavar="HOST[:PORT]",
        help="NTP server that a sweep may have this host ask; by default none; default port 123",
    )
    parser.add_argument("--count", type=convert.count, metavar="N", help="end after N messages; by default at Ctrl-C")


class _Workers(Protocol):
    """Starts workers for a peer that asks for them, and ends them; `started` says whether it ever did."""

    started: bool

    def close(self) -> None:
        """End them."""


class _Counter:
    messages = 0
    octets = 0

    def add(self, message: Message) -> None:
        self.messages += 1
        self.octets += len(message.payload)


def run(given: argparse.Namespace) -> int:
    """Answer until Ctrl-C or the count; then print the summary."""
    output = Output(given.json)
    counter = _Counter()
    pulse = Pulse()
    with Stop() as stop, linking.open_link(given) as link:
        watch = linking.Watch(_NAME, link)
        link.receiver(given.flow, handler=counter.add)
        hosts: list[_Workers] = [start(link, given.ntp) for start in _worker_hosts()] if link.listening else []

        def collectors() -> "list[Collector]":
            from twinlink.metrics import collector

            return [collector(link)]

        try:
            log(_NAME, f"{linking.endpoint(given)}, answers flow {given.flow} and sweeps; Ctrl-C ends it")
            with service.serving(given.http, pulse, lambda: [], collectors, lambda text, _: log(_NAME, text)):
                while not stop.wait(linking.LOOK_S) and (given.count is None or counter.messages < given.count):
                    pulse.turn()
                    watch.tell()
        finally:
            for host in hosts:
                host.close()
    watch.tell()
    output.emit(
        {
            "transport": given.transport,
            "flow": given.flow,
            "received": counter.messages,
            "octets": counter.octets,
            "missing": watch.missing,
        },
        f"answered {counter.messages:,} messages, {counter.octets:,} B; {watch.missing:,} did not arrive",
    )
    served = counter.messages or any(host.started for host in hosts)
    return DONE if served and not watch.missing else NOT_MET


def _worker_hosts() -> list[Callable[[Link, str | None], _Workers]]:
    return [point.load() for point in entry_points(group=_WORKERS)]
