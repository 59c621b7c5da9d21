"""What a worker does for a sweep on another host: what a sweep needs, and no more.

The peer of a pong may be any program that reaches it.  So each request has bounds, nothing that it names is a file or a
host here, and the worker listens at two ports and connects nowhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twinlink.errors import ConfigurationError

from .channels import without_cable
from .frames import MAX_PAYLOAD

REQUEST_OCTETS = 4096  # of a request
MAX_COUNT = 500_000  # messages; their records take 64 octets each
MAX_FILE_OCTETS = 256 * 1024 * 1024  # of each file that the worker or its mgen writes
NUMBERS: dict[str, tuple[float, float]] = {  # from, to
    "octets": (0, MAX_PAYLOAD),
    "count": (0, MAX_COUNT),
    "expected": (0, MAX_COUNT),
    "first": (0, 2**63 - 1),
    "rate_hz": (0.001, 1e6),
    "timeout_s": (0, 3600),
    "interval_s": (0, 60),
    "quiet_s": (0, 60),
    "drop_every": (0, 2**31 - 1),
}
OPTION_OCTETS = 256 * 1024 * 1024  # at most, of an option that says how many octets are kept or may wait
_KEEPS = ("window", "retention", "receive_buffer")  # such options, beside those whose names end with the unit
_WORDS = ("reliability",)  # options that are text, and one of a few words


@dataclass(frozen=True)
class RequestBounds:
    """What the operator of the pong allows.

    Attributes:
        host, first, last: where the worker listens: at this host, and at these ports.
        ntp: the NTP server that it asks; None: none.
    """

    host: str
    first: int
    last: int
    ntp: str | None = None

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Check the numbers of a request.  Raises ConfigurationError."""
        for name, (low, high) in NUMBERS.items():
            value = arguments.get(name)
            if value is not None and not (type(value) in (int, float) and low <= value <= high):
                raise ConfigurationError(f"{name} is {value!r}: a pong takes {low:,g} to {high:,g}, so ask for less")

    def check_open(self, subject: str, listening: bool, port: int, options: Mapping[str, Any]) -> None:
        """Check what is to be opened.  Raises ConfigurationError."""
        if listening is not True or type(port) is not int or not self.first <= port <= self.last:
            raise ConfigurationError(
                f"this worker listens at ports {self.first} to {self.last} and does nothing else: the sweep must reach "
                "its pong at the port that the pong was given, without a mapping between them"
            )
        if reason := without_cable(subject, False):
            raise ConfigurationError(f"{subject}: {reason}")
        for name, value in options.items():
            if type(value) not in (bool, int, float) and name not in _WORDS:
                raise ConfigurationError(
                    f"option {name} is no number and no switch, so it cannot be set from another host, where it could "
                    "name a file: measure that between two processes of one host"
                )
            keeps = name in _KEEPS or name.endswith("_octets")
            if keeps and value > OPTION_OCTETS:
                raise ConfigurationError(f"option {name} is {value!r}: from another host at most {OPTION_OCTETS:,}")

    def refuses_ntp(self, server: str) -> str | None:
        """Why the worker does not ask this NTP server; None if it does."""
        if server == self.ntp:
            return None
        only = f"asks {self.ntp} alone" if self.ntp else "asks no NTP server"
        return f"the pong {only}, as its operator chose: start it with --ntp and the server of the sweep"
