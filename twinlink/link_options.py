"""What `twinlink.open` takes besides its endpoint: the link's own options with their ranges, and its transport's."""

from collections.abc import Mapping
from typing import Any

from .errors import ConfigurationError
from .transports import Transport, transport_class
from .transports.base import Options, make_options
from .wire import MAX_PAYLOAD

MIN_WINDOW = 1024 * 1024
RANGES: dict[str, tuple[float, float]] = {  # from, to; a whole number where these are
    "max_payload": (0, MAX_PAYLOAD),
    "window": (MIN_WINDOW, 2**40),
    "retention": (MIN_WINDOW, 2**40),
    "send_timeout": (0, 1e9),
}


def check(transport: str, given: Mapping[str, Any]) -> tuple[type[Transport], Options]:
    """The class of a transport and its options, defaults filled in; what is ``given`` of the link's own is checked.

    Raises:
        ConfigurationError: nobody knows this transport, or an option cannot be used.
        TransportMissing: the transport's driver is not installed.
    """
    for name, (low, high) in RANGES.items():
        if name in given:
            _check_number(name, given[name], low, high)
    backend = transport_class(transport)
    rest = {name: value for name, value in given.items() if name not in RANGES}
    return backend, make_options(transport, backend.options_class, rest, RANGES)


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """One of several words; None stands for the default.  Raises ConfigurationError."""
    if value is not None and value not in choices:
        raise ConfigurationError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def _check_number(name: str, value: object, low: float, high: float) -> None:
    kinds, kind = ((int, float), "a number") if isinstance(high, float) else ((int,), "a whole number")
    if type(value) not in kinds or not low <= value <= high:  # type: ignore[operator]
        raise ConfigurationError(f"{name} must be {kind} from {low:,.0f} to {high:,.0f}, not {value!r}")
