"""Checks of what an application gives to the methods of a link; each raises ConfigurationError."""

import inspect
import math
from numbers import Integral, Real
from typing import get_args

from ..errors import ConfigurationError
from ..options import check_choice
from ..protocol.frames import FLOW_NAME, MAX_PAYLOAD
from ..protocol.session import Overflow, Pace, Priority, Reliability
from ..sync import Thresholds

MAX_AGE_S = 1e6
MAX_SKIPPED = 2**32  # of numbers at once


def check_flow_name(flow: object) -> None:
    """The name of a flow."""
    if not isinstance(flow, str) or not FLOW_NAME.fullmatch(flow):
        raise ConfigurationError(
            f"flow {flow!r}: a name has 1 to 63 letters, digits, dots, dashes or underscores "
            "and begins with a letter or digit"
        )


def check_timeout(timeout: object) -> None:
    """Seconds, or None to wait without end.

    -1 and the like, which mean no end elsewhere, are refused as whole numbers only: what is left until a time that has
    passed may be a little below 0.
    """
    if (
        timeout is None
        or (type(timeout) is float and not math.isnan(timeout))
        or (type(timeout) is int and timeout >= 0)
    ):
        return
    if isinstance(timeout, bool) or not isinstance(timeout, Real) or math.isnan(timeout) or _is_below_0(timeout):
        raise ConfigurationError(f"timeout must be seconds from 0 up, or None to wait without end, not {timeout!r}")


def _is_below_0(timeout: Real) -> bool:
    return isinstance(timeout, Integral) and timeout < 0


def check_octets(name: str, value: object) -> None:
    """A number of octets above 0."""
    if type(value) is not int or value <= 0:
        raise ConfigurationError(f"{name} must be a whole number of octets above 0, not {value!r}")


def check_skip(count: object) -> None:
    """How many sequence numbers to leave out."""
    if type(count) is not int or not 1 <= count <= MAX_SKIPPED:
        raise ConfigurationError(f"skip takes a whole number from 1 to {MAX_SKIPPED}, not {count!r}")


def check_count(max_messages: object) -> None:
    """How many messages to take at once, at most."""
    if type(max_messages) is not int or max_messages < 1:
        raise ConfigurationError(f"max_messages must be a whole number from 1 up, not {max_messages!r}")


def check_callable(name: str, value: object) -> None:
    """A handler, or None."""
    if value is not None and not callable(value):
        raise ConfigurationError(f"{name} must be callable, not {value!r}")


def check_handler(name: str, value: object) -> None:
    """A handler of a `Link`, or None: a function that is called, not one that is awaited."""
    check_callable(name, value)
    if inspect.iscoroutinefunction(value):
        raise ConfigurationError(
            f"{name} is a coroutine function, which this link would call and not await: give it a function, or open "
            "the link with twinlink.open_async"
        )


def check_choices(reliability: object, overflow: object, priority: object, pace: object) -> None:
    """How a flow is sent; None for the default."""
    check_choice("reliability", reliability, get_args(Reliability))
    check_choice("overflow", overflow, get_args(Overflow))
    check_choice("priority", priority, get_args(Priority))
    check_choice("pace", pace, get_args(Pace))


def check_unchanged(flow: str, given: tuple[str | None, ...], present: tuple[str, ...]) -> None:
    """The choices ``given`` for a flow that has been opened are the ``present`` ones, or None."""
    for choice, is_now in zip(given, present, strict=True):
        if choice not in {None, is_now}:
            raise ConfigurationError(
                f"flow {flow!r} has been opened as {is_now!r}: it cannot be {choice!r}; use another flow for that"
            )


def check_limits(max_age: object, max_payload: object) -> None:
    """Seconds, and octets; or None."""
    if max_age is not None and not (isinstance(max_age, int | float) and 0 < max_age < MAX_AGE_S):
        raise ConfigurationError(f"max_age must be seconds above 0 and below {MAX_AGE_S:g}, not {max_age!r}")
    if max_payload is not None and not (type(max_payload) is int and 0 <= max_payload <= MAX_PAYLOAD):
        raise ConfigurationError(f"max_payload must be octets from 0 to {MAX_PAYLOAD}, not {max_payload!r}")


def checked_thresholds(stale_after: object, out_after: object, completeness: object) -> Thresholds:
    """The thresholds of freshness: two in s, and a part."""
    if (
        isinstance(stale_after, int | float)
        and isinstance(out_after, int | float)
        and isinstance(completeness, int | float)
        and 0 < stale_after <= out_after
        and 0 <= completeness <= 1
    ):
        return Thresholds(stale_after, out_after, completeness)
    raise ConfigurationError(
        f"sync needs 0 < stale_after <= out_after and completeness from 0 to 1, not {stale_after!r}, "
        f"{out_after!r} and {completeness!r}"
    )
