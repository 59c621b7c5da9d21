"""Options of a transport: what cannot be used is refused by name, before the driver sees it."""

from dataclasses import dataclass, field

import pytest

import twinlink
from twinlink.transports.base import MOST, Options, make_options


@dataclass(frozen=True)
class Choices(Options):
    queue: int = 16
    buffer: int = 0
    level: int = field(default=0, metadata={"most": 2})
    rate: float = 0.5
    switch: bool = True


@pytest.mark.parametrize(
    "given", [{"queue": 1}, {"queue": MOST}, {"buffer": 0}, {"level": 2}, {"rate": 0.1}, {"rate": 3}, {"switch": False}]
)
def test_within_the_range(given: dict[str, object]) -> None:
    assert make_options("here", Choices, given) == Choices(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"queue": 0}, "queue must be above 0 and at most 2147483647, not 0"),
        ({"queue": MOST + 1}, "queue must be above 0"),
        ({"buffer": -1}, "buffer must be 0 or more and at most 2147483647, not -1"),
        ({"level": 3}, "level must be 0 or more and at most 2, not 3"),
        ({"rate": 0}, "rate must be above 0"),
        ({"rate": float("nan")}, "rate must be above 0"),
        ({"switch": 1}, "switch takes bool"),
        ({"queue": True}, "queue takes int"),
    ],
)
def test_beyond_it(given: dict[str, object], says: str) -> None:
    with pytest.raises(twinlink.ConfigurationError, match=says):
        make_options("here", Choices, given)


@pytest.mark.parametrize(
    ("transport", "option", "value"),
    [("zeromq", "io_threads", 0), ("zeromq", "io_threads", 65), ("zenoh", "data_queue", 0), ("zenoh", "lease_ms", 0)],
)
def test_real_transports(transport: str, option: str, value: int) -> None:
    with pytest.raises(twinlink.ConfigurationError, match=f"{option} must be above 0"):
        twinlink.open(transport, connect="tcp/127.0.0.1:7447", **{option: value})  # type: ignore[arg-type]


def test_busy_poll_takes_true_or_false() -> None:
    with pytest.raises(twinlink.ConfigurationError, match="busy_poll must be true or false, not 1"):
        twinlink.open("memory", listen="tcp/here:1", busy_poll=1)  # type: ignore[arg-type]
