"""The options of `twinlink sweep`."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twinlink_results import labels

from twinlink.appkit import convert, options
from twinlink.appkit.options import Parser
from twinlink.errors import ConfigurationError
from twinlink.transports import PORT

from .cells import DIRECTIONS, Plan
from .channels import SUBJECTS, SYSTEMS
from .frames import MAX_PAYLOAD

MGEN_HZ = 20.0
_MODES, _SETTINGS = tuple(labels.MODES), tuple(labels.SETTINGS)
QUICK = {"count": 20, "rounds": 1, "warm_up": 5}  # in place of the plan's
ALL = "all"
_REQUIREMENTS = ("loss", "duplicates", "reordered", "rtt-p50-ms", "rtt-p99-ms")


def declare(parser: Parser) -> None:
    """Declare the options."""
    _add_what(parser)
    _add_how_often(parser)
    _add_where(parser)
    parser.add_argument(
        "--seed", type=convert.whole(0), default=Plan.seed, metavar="N", help="seed of the order of the cells"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the results; default sweep-DATE-TIME")
    parser.add_argument(
        "--require",
        action="append",
        type=_requirement,
        metavar="NAME=MOST",
        help=f"exit code 1 if a cell of twinlink exceeds it: {', '.join(_REQUIREMENTS)}; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="results.json on stdout")


def _add_what(parser: Parser) -> None:
    parser.add_argument(
        "--transports",
        type=convert.names,
        default="zeromq,zenoh",
        metavar="NAME[,NAME]",
        help="transports of twinlink to measure",
    )
    parser.add_argument(
        "--baselines",
        choices=("yes", "no"),
        default="yes",
        help="also measure the bare libraries, bare TCP and MQTT, interleaved in the same run",
    )
    parser.add_argument(
        "--subjects", type=convert.names, metavar="NAME[,NAME]", help=f"measure exactly these: {', '.join(SUBJECTS)}"
    )
    parser.add_argument(
        "--systems",
        type=_some_of((*SYSTEMS, ALL)),
        metavar="NAME[,NAME]",
        help=f"short form of --subjects, all subjects of {', '.join(SYSTEMS)}; {ALL}: all of them",
    )
    parser.add_argument(
        "--payloads",
        type=_payloads,
        default="100,1K,10K,100K,1M",
        metavar="B[,B]",
        help="octets of payload; K and KB are 1024, M and MB 1024 x 1024",
    )
    parser.add_argument(
        "--directions",
        type=_some_of(DIRECTIONS),
        default=",".join(DIRECTIONS),
        metavar="D[,D]",
        help="rw-dt: from the Real World to the Digital Twin; dt-rw: the reverse",
    )
    parser.add_argument(
        "--mode",
        type=_some_of(_MODES),
        metavar="M[,M]",
        help="closed (default): the next message when the last is answered; open: at --rate, regardless of answers; "
        "saturation: search for the highest rate without loss",
    )
    parser.add_argument(
        "--rate",
        type=convert.above_0,
        metavar="HZ",
        help=f"messages per second in an open loop; default {Plan.rate_hz:g}, {MGEN_HZ:g} with --source mgen",
    )
    parser.add_argument(
        "--source",
        choices=("twinlink", "mgen"),
        default="twinlink",
        help="mgen: mgen processes send and receive in an open loop; a bridge carries their messages",
    )


def _add_how_often(parser: Parser) -> None:
    """Options: number of messages and rounds."""
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few messages, in under a minute, or two on a busy machine: whether it runs here",
    )
    for name, number, what in (
        ("count", convert.count, "messages of each cell in all rounds together"),
        ("rounds", convert.count, "rounds; each starts all processes anew"),
        ("warm_up", convert.whole(0), "uncounted messages before each cell in each round"),
    ):
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=number,
            metavar="N",
            help=f"{what}; default {getattr(Plan, name)}, with --quick {QUICK[name]}",
        )


def how_often(given: argparse.Namespace) -> dict[str, int]:
    """Count, rounds and warm-up, as the plan takes them."""
    often = {
        name: default if (value := getattr(given, name)) is None else value
        for name, default in (QUICK if given.quick else {name: getattr(Plan, name) for name in QUICK}).items()
    }
    return often | {"rounds": min(often["rounds"], often["count"])}


def _add_where(parser: Parser) -> None:
    """Options: where the two sides run, and the options of their links."""
    parser.add_argument(
        "--setting", choices=_SETTINGS, help="where the two sides run; default netns for root, else loopback"
    )
    parser.add_argument(
        "--rate-limit",
        type=_rate_limit,
        metavar="RATE",
        help="rate of the path between two namespaces, such as 100mbit",
    )
    parser.add_argument(
        "--delay",
        type=convert.above_0,
        metavar="MS",
        help="delay each way of the path between two namespaces, in ms; needs root, and TUN",
    )
    parser.add_argument(
        "--peer",
        type=convert.connect,
        metavar="HOST[:PORT]",
        help=f"where `twinlink pong` listens on the other host, by default at port {PORT}; pong takes the Digital "
        "Twin's side, and the ports from 10 above its own",
    )
    parser.add_argument("--peer-transport", default="zeromq", metavar="NAME", help="transport of that pong")
    parser.add_argument(
        "--identity",
        metavar="DIR",
        help="folder of this side's identity, for the link to that pong, which carries commands and records; the links "
        "that are measured have none",
    )
    parser.add_argument(
        "--require-identity", action="store_true", help="do not open a link to that pong without --identity"
    )
    parser.add_argument(
        "--option",
        action="append",
        type=_option,
        metavar="SUBJECT.NAME=VALUE",
        help="option of a subject, such as raw-mqtt-qos2.no_delay=false; may be repeated",
    )
    parser.add_argument(
        "--ntp",
        type=convert.ntp_server,
        metavar="HOST[:PORT]",
        help="NTP server that both hosts query for their clock offset; default port 123",
    )
    parser.add_argument(
        "--timeout",
        type=convert.above_0,
        default=Plan.timeout_s,
        metavar="S",
        help="how long to wait for an answer, and for the peer",
    )


def chosen(given: argparse.Namespace) -> tuple[str, ...] | None:
    """The subjects of --subjects or --systems; None without either.  Raises ConfigurationError."""
    if given.systems is None:
        return given.subjects and convert.parts(given.subjects)
    if given.subjects is not None:
        raise ConfigurationError("--systems is a short form of --subjects: give one of them")
    systems = convert.parts(given.systems)
    return tuple(name for system in SYSTEMS if {system, ALL} & {*systems} for name in SYSTEMS[system])


def _some_of(known: tuple[str, ...]) -> Callable[[str], str]:
    def some(text: str) -> str:
        for name in convert.parts(text):
            if name not in known:
                raise argparse.ArgumentTypeError(options.none_of(name, known))
        return convert.names(text)

    return some


def _payloads(text: str) -> str:
    sizes = list(map(convert.octets, convert.parts(text)))
    if max(sizes, default=0) > MAX_PAYLOAD:
        raise argparse.ArgumentTypeError(f"a payload of {max(sizes)} octets; a link takes at most {MAX_PAYLOAD}")
    if len(set(sizes)) < len(sizes):  # 1K and 1024 are the same cell
        raise argparse.ArgumentTypeError(f"each payload once, not {text!r}")
    return convert.names(text)


def _rate_limit(text: str) -> str:
    from .namespaces import octets_per_s

    try:
        octets_per_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text.lower()


def _option(text: str) -> tuple[str, str, Any]:
    subject, dot, rest = text.partition(".")
    if not dot:
        raise argparse.ArgumentTypeError(f"{text!r} is not SUBJECT.NAME=VALUE")
    return subject, *convert.link_option(rest)


def _requirement(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    if name not in _REQUIREMENTS:
        raise argparse.ArgumentTypeError(options.none_of(name, _REQUIREMENTS))
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=MOST, such as {name}=0")
    most = convert.seconds(value)
    if name == "loss" and most > 1:
        raise argparse.ArgumentTypeError(f"{text}: loss is a ratio from 0 to 1")
    return name, most
