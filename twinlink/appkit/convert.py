"""Converts the text of an option to its value.  Raises ArgumentTypeError, which says what is expected."""

import argparse
import json
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from twinlink.errors import ConfigurationError
from twinlink.prbs import parse_prbs
from twinlink.process import address
from twinlink.transports import Endpoint

_FACTORS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_SIZE = re.compile(r"([0-9]{1,18}) ?(?:([KMG])(?:I?B)?|B?)", re.IGNORECASE)
HTTP_PORT = 9464  # that of docs/monitoring.md
MIRROR_PORT = 7457
_IN_OCTETS = ("max_payload", "window", "retention", "receive_buffer", "os_send_buffer", "os_receive_buffer")


def link_option(text: str) -> tuple[str, Any]:
    """``name=value``; the value is a number, true, false or another JSON value if it reads as one, else text.

    Options in octets take a unit, as `octets` does.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    if (name in _IN_OCTETS or name.endswith("_octets")) and _SIZE.fullmatch(value):
        return name, octets(value)
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def transport(text: str) -> str:
    """Name of a transport between processes."""
    if text == "memory":
        raise argparse.ArgumentTypeError("memory connects links of one process; between processes use zeromq or zenoh")
    return text


def count(text: str) -> int:
    """A whole number from 1."""
    return int(_at_least(1, _convert(int, text, "a whole number")))


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """Converts whole numbers within these bounds."""
    bounds = f"from {least}" if most is None else f"from {least} to {most}"

    def chosen(text: str) -> int:
        if not text.isdecimal() or int(text) < least or (most is not None and int(text) > most):
            raise argparse.ArgumentTypeError(f"a whole number {bounds} is expected, not {text!r}")
        return int(text)

    return chosen


def prbs(text: str) -> frozenset[int]:
    """PRBs: ``0-3,50``."""
    try:
        return parse_prbs(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def names(text: str) -> str:
    """A list such as ``a,b``, each once, as text without spaces, like the default."""
    found = parts(text)
    if not found or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"a list such as a,b is expected, each once, not {text!r}")
    return ",".join(found)


def parts(text: str) -> tuple[str, ...]:
    """The parts between commas."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def octets(text: str) -> int:
    """A number of octets; K, KB and KiB mean 1024, as in the paper's payloads, M and G its powers."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of octets such as 100, 64KB or 1MB (K = 1024, M = 1024 K, G = 1024 M)"
        )
    return int(match[1]) * _FACTORS[(match[2] or "").upper()]


def seconds(text: str) -> float:
    """A time in seconds, 0 or more."""
    return _at_least(0, _convert(float, text, "a number"))


def above_0(text: str) -> float:
    """A number above 0, such as a time in seconds."""
    value = seconds(text)
    if not value:
        raise argparse.ArgumentTypeError("a number above 0 is expected")
    return value


def factor(text: str) -> float:
    """A positive number, or ``1/number``."""
    found = re.fullmatch(r"(1/)?(\d+(?:\.\d*)?(?:e[-+]?\d+)?)", text, re.IGNORECASE)
    value = float(found[2]) if found else 0.0
    if not 1e-9 <= value <= 1e9:
        raise argparse.ArgumentTypeError(f"a number or 1/number is expected, such as 1/2048, not {text!r}")
    return 1 / value if found and found[1] else value


def number(fits: Callable[[float], bool], expected: str) -> Callable[[str], float]:
    """A type for argparse: takes the numbers that fit; the error for others begins with what is ``expected``."""

    def chosen(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not fits(value):  # NaN is in no range
            raise argparse.ArgumentTypeError(f"{expected}, not {text!r}")
        return value

    return chosen


fraction = number(lambda value: 0 <= value <= 1, "a part from 0 to 1 is expected, such as 0.99")


def listen(text: str) -> str:
    """The endpoint ``tcp/host:port`` of ``HOST`` or ``HOST:PORT``, by default port 7447: where this side listens."""
    return _endpoint(Endpoint.parse, text)


def mirror(text: str) -> str:
    """As `listen`, by default port 7457: where observers connect."""
    return _endpoint(lambda given: Endpoint.parse(given, MIRROR_PORT), text)


def connect(text: str) -> str:
    """As `listen`, of a listener to connect to; or several with commas between them."""
    if "*" in text:
        advice = "the host comes first: `twinlink sub 10.0.0.5 '*'`; a listener takes `--flow '*'`"
        raise argparse.ArgumentTypeError(f"{text!r} is no host; {advice}")
    return ",".join(_endpoint(Endpoint.parse_remote, part) for part in text.split(","))


def _endpoint(parse: Callable[[str], Endpoint], text: str) -> str:
    try:
        return str(parse(text))
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def ntp_server(text: str) -> str:
    """``HOST`` or ``HOST:PORT``."""
    from . import ntp

    try:
        ntp.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


class HttpAddress(NamedTuple):
    """Where to listen; ``host`` without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def http_address(text: str) -> HttpAddress:
    """Where ``--http`` listens: ``HOST`` or ``HOST:PORT``, by default `HTTP_PORT`; port 0 takes a free one."""
    try:
        host, port = address.parse(text, HTTP_PORT, least_port=0)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return HttpAddress(host.strip("[]"), port)


def _convert(kind: type[int] | type[float], text: str, expected: str) -> float:
    try:
        return kind(text)
    except ValueError:
        advice = (
            "; give the number alone, in the unit that --help states"
            if re.fullmatch(r"[0-9.]+ ?[a-zµ]+", text, re.IGNORECASE)
            else ""
        )
        raise argparse.ArgumentTypeError(f"{text!r} is not {expected}{advice}") from None


def _at_least(least: int, value: float) -> float:
    if not least <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{value} is out of range: a finite number of at least {least} is expected")
    return value
