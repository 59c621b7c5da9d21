"""``twinlink-replay``: the twin's side, headless, until it is told to end."""

import argparse
import math
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import twinlink
from twinlink.cli.console import explain
from twinlink.measure.ledger import Ledger
from twinlink.prbs import parse_prbs

from . import grc
from .journal import Journal

if TYPE_CHECKING:
    from .twin import Twin

OK, LOST, FAILED, BAD_ARGUMENTS = 0, 1, 2, 3
LOOK_S = 0.05


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(BAD_ARGUMENTS, f"{self.prog}: {message}\n")


def main(argv: list[str] | None = None) -> int:
    """The command; returns the exit code."""
    arguments = _make_parser().parse_args(argv)
    if arguments.grc_path:
        print(grc.PATH)
        return OK
    if arguments.companion is not None:
        return _companion(arguments.companion)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        return _run(arguments, stop)
    except twinlink.ConfigurationError as error:
        return _fail(error, BAD_ARGUMENTS)
    except (twinlink.TwinlinkError, ImportError, OSError) as error:
        return _fail(error, FAILED)


def _run(arguments: argparse.Namespace, stop: threading.Event) -> int:
    from .flowgraph import Flowgraph  # needs GNU Radio
    from .recording import Recording
    from .twin import Twin

    journal = Journal(arguments.log)
    recording = Recording(arguments.out) if arguments.out else None
    if arguments.records:
        arguments.records.mkdir(parents=True, exist_ok=True)  # now: at the end it is too late to name another folder
    ledger = Ledger(("control",), ("spectrum", "control-result")) if arguments.records else None
    with twinlink.open(
        arguments.transport,
        listen=arguments.listen if arguments.connect is None else None,
        connect=arguments.connect,
        node=arguments.node,
    ) as link:
        sync = link.sync("spectrum")
        # It never waits; "latest" would leave some unanswered.
        control = link.sender("control", overflow="drop-oldest", on_ack=ledger.acknowledged if ledger else None)
        twin = Twin(
            journal,
            partial(ledger.send, control) if ledger else control.send,
            sync,
            recording,
            validity_ms=arguments.validity_ms,
            protected=arguments.protect_prbs,
            control=arguments.control,
            count=arguments.count,
        )
        journal.event(
            "started",
            f"{arguments.transport} {'listening on' if link.listening else 'connecting to'} {link.endpoint}",
            transport=arguments.transport,
            endpoint=link.endpoint,
            node=link.node,
        )
        link.events(handler=twin.link_event)
        link.receiver("control-result", handler=partial(_result, twin, ledger))
        noted = ledger.received if ledger else None
        with Flowgraph(link, twin.add, arguments.buffer_mb * 1024 * 1024, noted) as flowgraph:
            why = _wait(arguments, stop, twin, lambda: flowgraph.observer.error)
            freshness = sync.stats()
        counted = flowgraph.source.stats()
    twin.finish()
    if ledger:  # now: closing the link waits for acks
        ledger.write(arguments.records)
    if flowgraph.observer.error:
        raise OSError(f"the analysis failed: {flowgraph.observer.error!r}")
    text = f"{twin.records} records, {counted['missing']} missing, {counted['dropped']} of them dropped here"
    text += f"; {twin.proposed} proposals, {twin.installed} installed, {twin.rejected} rejected"
    text += f"; out of sync {twin.out_of_sync} times"
    journal.event(
        "summary",
        f"ended ({why}): {text}",
        reason=why,
        records=twin.records,
        foreign=twin.foreign,
        proposed=twin.proposed,
        installed=twin.installed,
        rejected=twin.rejected,
        out_of_sync=twin.out_of_sync,
        sync=freshness,
        **counted,
    )
    journal.close()
    return LOST if why != "signal" and counted["missing"] else OK


def _result(twin: "Twin", ledger: Ledger | None, message: twinlink.Message) -> None:
    if ledger:
        ledger.received(message)
    twin.result(message)


def _wait(
    arguments: argparse.Namespace, stop: threading.Event, twin: "Twin", failed: Callable[[], Exception | None]
) -> str:
    """Until there is a reason to end; returns it."""
    while not stop.wait(LOOK_S):
        if failed():
            return "failure"
        if twin.done.is_set():
            return "count"
        if arguments.idle and twin.last_ns and time.monotonic_ns() - twin.last_ns > arguments.idle * 1e9:
            return "idle"
    return "signal"


def _companion(graph: str) -> int:
    """Become gnuradio-companion, with our blocks, run by this Python so that it finds this package too."""
    command = shutil.which("gnuradio-companion")
    if command is None:
        print("twinlink-replay: gnuradio-companion was not found: apt install gnuradio", file=sys.stderr)
        return FAILED
    paths = [str(grc.PATH), os.environ.get("GRC_BLOCKS_PATH", "")]
    os.environ["GRC_BLOCKS_PATH"] = os.pathsep.join(filter(None, paths))
    path = grc.PATH / graph if graph and not Path(graph).exists() else Path(graph)
    os.execv(sys.executable, [sys.executable, command, *([str(path)] if graph else [])])


def _make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="twinlink-replay",
        description="Rebuild the uplink spectrum in a GNU Radio flowgraph, find interference, propose PRB blocks.",
        allow_abbrev=False,
    )
    link = parser.add_argument_group("link to the gNB's exporter")
    link.add_argument("--transport", default="zeromq", help="zeromq, zenoh, ... (default: %(default)s)")
    where = link.add_mutually_exclusive_group()
    where.add_argument(
        "--listen",
        metavar="tcp/HOST:PORT",
        default="tcp/0.0.0.0:7447",
        help="the exporter connects (default: %(default)s)",
    )
    where.add_argument("--connect", metavar="tcp/HOST:PORT", help="the exporter listens there")
    link.add_argument("--node", default="twin-1", help="name that the exporter sees (default: %(default)s)")
    link.add_argument(
        "--buffer-mb", type=_integer(1, 65536), default=256, help="for the flowgraph, in MiB (default: %(default)s)"
    )
    control = parser.add_argument_group("control loop")
    control.add_argument(
        "--no-control", dest="control", action="store_false", help="observe only, propose no PRB block"
    )
    control.add_argument("--validity-ms", type=_integer(100, 3_600_000), default=2000, help="default: %(default)s")
    control.add_argument(
        "--protect-prbs", type=_prbs, default=frozenset(), metavar="0-3,50", help="never ask to block these"
    )
    end = parser.add_argument_group("end (without these: on SIGINT or SIGTERM)")
    end.add_argument("--count", type=_integer(1, 2**62), metavar="N", help="after N records")
    end.add_argument("--idle", type=_seconds, metavar="SECONDS", help="after so long without a record, once one came")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write rebuilt.sigmf-{data,meta} and observations.npz")
    parser.add_argument("--log", type=Path, metavar="FILE", help="events as JSON Lines")
    parser.add_argument("--records", type=Path, metavar="DIR", help="what became of every message, at the end")
    desktop = parser.add_argument_group("gnuradio-companion")
    desktop.add_argument("--grc-path", action="store_true", help="print what GRC_BLOCKS_PATH must hold, and end")
    desktop.add_argument(
        "--companion",
        nargs="?",
        const="uplink_desktop.grc",
        metavar="FILE.grc",
        help="start gnuradio-companion with these blocks (default: the desktop flowgraph)",
    )
    return parser


def _integer(low: int, high: int) -> Callable[[str], int]:
    """For argparse: an integer within bounds, with a message that names them."""

    def convert(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"an integer from {low} to {high} is expected, not {text!r}")
        return int(text)

    return convert


def _seconds(text: str) -> float:
    """For argparse: a time."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"a time above 0 s is expected, not {text!r}")
    return value


def _prbs(text: str) -> frozenset[int]:
    """For argparse: ``0-3,50``."""
    try:
        return parse_prbs(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _fail(error: Exception, code: int) -> int:
    text = explain(error) if isinstance(error, OSError) else error
    print(f"twinlink-replay: {text}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
