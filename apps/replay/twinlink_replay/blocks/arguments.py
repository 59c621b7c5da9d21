"""Checks the arguments of blocks at construction: GNU Radio would show later errors in its log alone."""

import math
import operator
import os

import twinlink
from twinlink.options import make_transport
from twinlink.protocol.frames import FLOW_NAME
from twinlink.transports import transport_name

from .link_pool import Address


def link_address(
    transport: str,
    listen: str | None,
    connect: str | None,
    flow: str,
    node: str | None,
    link: twinlink.Link | None,
    identity: str | os.PathLike[str] | None,
) -> Address:
    """The address of a block's link, which is not opened; an empty ``node`` or ``identity`` stands for None.

    Args:
        transport, listen, connect, node, identity: as of `twinlink.open`, but with one endpoint in ``connect``.
        flow: name of the block's flow.
        link: an open link that the block uses instead; then the other arguments of the link are not used.

    Raises:
        ConfigurationError, TransportMissing: the block could not start with these arguments.
    """
    if not isinstance(flow, str) or not FLOW_NAME.fullmatch(flow):
        raise twinlink.ConfigurationError(
            f"flow must be 1 to 63 letters, digits, dots, dashes or underscores that begin with a letter or digit, "
            f"not {flow!r}"
        )
    if link is not None and not isinstance(link, twinlink.Link):
        raise twinlink.ConfigurationError(f"link must be what twinlink.open returns, or None, not {link!r}")
    if isinstance(connect, list | tuple):
        raise twinlink.ConfigurationError("a block connects to one endpoint; with link= it takes a link of yours")
    if identity is not None and not isinstance(identity, str | os.PathLike):
        raise twinlink.ConfigurationError(f"identity must be the folder of an identity, not {identity!r}")
    folder = os.fspath(identity) if identity else None
    address = Address(transport_name(transport), listen, connect, node or None, folder)
    if link is None:
        make_transport(transport, listen=listen, connect=connect, node=address.node, identity=folder, options={})
    return address


def choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """The value, if it is one of several words.  Raises ConfigurationError."""
    if value not in choices:
        raise twinlink.ConfigurationError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    return value


def flag(name: str, value: bool) -> bool:
    """The value, if it is True or False.  Raises ConfigurationError."""
    if not isinstance(value, bool):
        raise twinlink.ConfigurationError(f"{name} must be True or False, not {value!r}")
    return value


def whole(name: str, value: int, low: int, high: int | None = None) -> int:
    """The value as an int, if it is a whole number within these bounds.  Raises ConfigurationError."""
    try:
        number = operator.index(value)  # also of numpy's integers, which a variable of a flowgraph may hold
    except TypeError:
        number = low - 1
    if isinstance(value, bool) or number < low or (high is not None and number > high):
        bounds = f"from {low}" if high is None else f"from {low} to {high}"
        raise twinlink.ConfigurationError(f"{name} must be a whole number {bounds}, not {value!r}")
    return number


def finite(name: str, value: float, low: float = -math.inf) -> float:
    """The value as a float, if it is a finite number from ``low``.  Raises ConfigurationError."""
    try:
        number = math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < low:
        bound = "" if low == -math.inf else f" from {low:g}"
        raise twinlink.ConfigurationError(f"{name} must be a finite number{bound}, not {value!r}")
    return number
