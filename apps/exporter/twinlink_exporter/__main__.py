"""``twinlink-exporter``: runs beside the gNB until it is told to end."""

import argparse
import json
import logging
import math
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from twinlink_e3 import FFT_SIZES, N_PRBS_MAX, GrammarMissing, add_endpoint_arguments, endpoints_of, first_bin, grammar

import twinlink
from twinlink.cli.console import explain
from twinlink.measure.ledger import Ledger
from twinlink.prbs import format_prbs, parse_prbs

from .exporter import RECEIVES, SENDS, Exporter
from .guard import Limits
from .journal import Journal
from .observation import Carrier
from .sockets import E3Sockets

OK, FAILED, BAD_ARGUMENTS = 0, 2, 3
SPACINGS_KHZ = (15, 30, 60, 120, 240, 480, 960)  # 3GPP TS 38.211 table 4.2-1


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(BAD_ARGUMENTS, f"{self.prog}: {message}\n")


def main(argv: list[str] | None = None) -> int:
    """The command; returns the exit code."""
    _on_signal(lambda: sys.exit(OK))
    logging.basicConfig(format="%(asctime)s.%(msecs)03d twinlink-exporter: %(message)s", datefmt="%H:%M:%S")
    parser = _make_parser()
    arguments = parser.parse_args(argv)
    try:
        protected = parse_prbs(arguments.protect_prbs)
        carrier = Carrier(arguments.n_prbs, arguments.scs_khz * 1000, arguments.centre_hz, arguments.fft_size)
        if carrier.fft_size is not None:
            first_bin(carrier.n_prbs, carrier.fft_size)
        if protected and max(protected) >= carrier.n_prbs:
            raise ValueError(f"--protect-prbs: the carrier has PRBs 0-{carrier.n_prbs - 1}")
    except ValueError as error:
        parser.error(str(error))
    limits = Limits(carrier.n_prbs, protected, arguments.max_age_ms, arguments.max_validity_ms)
    try:
        grammar.e3ap()
        grammar.spectrum()
        with Journal(arguments.log) as journal:
            return _run_reported(arguments, carrier, limits, journal)
    except twinlink.ConfigurationError as error:
        return _fail(error, BAD_ARGUMENTS)
    except (GrammarMissing, twinlink.TwinlinkError, OSError, ValueError) as error:
        return _fail(error, FAILED)


def _run_reported(arguments: argparse.Namespace, carrier: Carrier, limits: Limits, journal: Journal) -> int:
    try:
        return _run(arguments, carrier, limits, journal)
    except (twinlink.TwinlinkError, OSError, ValueError):
        raise  # for the caller to say
    except Exception as error:
        text = f"a defect of the exporter: {error!r}; please report it with the file that --log writes"
        journal.event("failed", text, traceback=traceback.format_exc())
        return FAILED


def _run(arguments: argparse.Namespace, carrier: Carrier, limits: Limits, journal: Journal) -> int:
    # What is written at the end is tried now: then it is too late to name another place.
    if arguments.records:
        arguments.records.mkdir(parents=True, exist_ok=True)
    if arguments.summary:
        arguments.summary.open("a").close()
    ledger = Ledger(SENDS, RECEIVES) if arguments.records else None
    with twinlink.open(
        arguments.transport,
        listen=arguments.listen,
        connect=arguments.connect if arguments.listen is None else None,
        node=arguments.node,
    ) as link:
        sockets = E3Sockets(endpoints_of(arguments))
        exporter = Exporter(
            link, sockets, carrier, limits, journal, clear_at_start=arguments.clear_at_start, ledger=ledger
        )
        _on_signal(exporter.stop)
        what = f"listening on {arguments.listen}" if arguments.listen else f"connecting to {arguments.connect}"
        journal.event(
            "started",
            f"{arguments.transport} {what} as {arguments.node}; "
            f"protected PRBs: {format_prbs(limits.protected) or 'none (SSB, CORESET0, PRACH: see --protect-prbs)'}",
            transport=arguments.transport,
            endpoint=arguments.listen or arguments.connect,
            node=arguments.node,
            protected=sorted(limits.protected),
        )
        exporter.run()
    if ledger:  # now: closing the link waits for acks
        ledger.write(arguments.records)
    summary = exporter.summary()
    shown = ("indications", "exported", "without_twin", "undecodable")
    text = ", ".join(f"{summary[name]} {name.replace('_', ' ')}" for name in shown)
    journal.event("summary", f"{text}, {summary['spectrum']['lost']} lost on the way", **summary)
    if arguments.summary:
        arguments.summary.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return OK


def _make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="twinlink-exporter",
        description="Export a gNB's uplink spectrum from E3 to its digital twin, and the twin's PRB blocks to the gNB.",
    )
    link = parser.add_argument_group("link to the twin")
    link.add_argument("--transport", default="zeromq", help="zeromq, zenoh, ... (default: %(default)s)")
    where = link.add_mutually_exclusive_group()
    where.add_argument(
        "--connect",
        metavar="tcp/HOST:PORT",
        default="tcp/127.0.0.1:7447",
        help="the twin listens there (default: %(default)s)",
    )
    where.add_argument("--listen", metavar="tcp/HOST:PORT", help="the twin connects")
    link.add_argument("--node", default="gnb-1", help="name that the twin sees (default: %(default)s)")
    add_endpoint_arguments(parser)
    carrier = parser.add_argument_group("carrier (E3 does not tell it)")
    carrier.add_argument("--n-prbs", type=_integer(1, N_PRBS_MAX), default=106, help="default: %(default)s")
    carrier.add_argument(
        "--scs-khz", type=int, choices=SPACINGS_KHZ, default=30, help="subcarrier spacing (default: %(default)s)"
    )
    carrier.add_argument("--centre-hz", type=_frequency, default=3.6192e9, help="default: %(default)g")
    carrier.add_argument(
        "--fft-size",
        type=_integer(1, 4096),
        help=f"bins of a symbol (default: from its length, {', '.join(map(str, FFT_SIZES))})",
    )
    guard = parser.add_argument_group("what the twin may ask for")
    guard.add_argument("--protect-prbs", default="", metavar="0-3,50", help="never block these (SSB, CORESET0, PRACH)")
    guard.add_argument("--max-age-ms", type=_integer(1, 3_600_000), default=500, help="default: %(default)s")
    guard.add_argument("--max-validity-ms", type=_integer(1, 3_600_000), default=10_000, help="default: %(default)s")
    guard.add_argument("--clear-at-start", action="store_true", help="clear what an earlier exporter may have left")
    parser.add_argument("--log", type=Path, metavar="FILE", help="events as JSON Lines")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="counters as JSON, at the end")
    parser.add_argument("--records", type=Path, metavar="DIR", help="what became of every message, at the end")
    return parser


def _integer(low: int, high: int) -> Callable[[str], int]:
    """For argparse: an integer within bounds, with a message that names them."""

    def convert(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"an integer from {low} to {high} is expected, not {text!r}")
        return int(text)

    return convert


def _frequency(text: str) -> float:
    """For argparse: Hz."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:  # the twin reads it from JSON, which knows no other numbers
        raise argparse.ArgumentTypeError(f"a frequency in Hz is expected, such as 3.6192e9, not {text!r}")
    return value


def _on_signal(act: Callable[[], object]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: act())


def _fail(error: Exception, code: int) -> int:
    text = explain(error) if isinstance(error, OSError) else error
    print(f"twinlink-exporter: {text}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
