"""How a link is recorded, and what a recording depends on."""

import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Self, TypedDict

from ..errors import ConfigurationError
from ..runtime.capture import QUEUE_OCTETS
from ..spelling import near

LEAST_FREE_OCTETS = 256 * 1024 * 1024
ROTATE_OCTETS = 1024 * 1024 * 1024
PACKAGES = "twinlink", "mcap", "pyzmq", "eclipse-zenoh", "paho-mqtt", "websockets"


class RecordingOptions(TypedDict, total=False):
    """The arguments of `Link.record`, for type checkers: see `RecorderOptions`."""

    flows: Sequence[str]
    queue_octets: int
    rotate_octets: int
    rotate_s: float | None
    min_free_octets: int
    overwrite: bool


@dataclass(frozen=True, slots=True)
class RecorderOptions:
    """How a link is recorded.

    Attributes:
        flows: names, or patterns as of a shell.
        queue_octets: that may wait to be written; what comes beyond is left out, and named.
        rotate_octets: of a file; then the next one begins.
        rotate_s: seconds after which the next file begins; None: whatever its age.
        min_free_octets: of the disk; while less is free, nothing is written.
        overwrite: whether a file that exists is replaced.
    """

    flows: Sequence[str] = ("*",)
    queue_octets: int = QUEUE_OCTETS
    rotate_octets: int = ROTATE_OCTETS
    rotate_s: float | None = None
    min_free_octets: int = LEAST_FREE_OCTETS
    overwrite: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.flows, str) or not all(isinstance(flow, str) for flow in self.flows):
            raise ConfigurationError(f"flows takes a list of names or patterns, not {self.flows!r}")
        for name, least in (("queue_octets", 1), ("rotate_octets", 1), ("min_free_octets", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ConfigurationError(f"{name} takes a whole number from {least}, not {value!r}")
        if self.rotate_s is not None and not (isinstance(self.rotate_s, int | float) and self.rotate_s > 0):
            raise ConfigurationError(f"rotate_s takes seconds above 0, or None, not {self.rotate_s!r}")

    @classmethod
    def checked(cls, given: RecordingOptions) -> Self:
        """The given options, with defaults.  Raises ConfigurationError."""
        known = cls.__dataclass_fields__
        for name in given:
            if name not in known:
                raise ConfigurationError(
                    f"a recording has no option {name!r}{near(name, known)}; it has {', '.join(known)}"
                )
        return cls(**given)


def versions() -> dict[str, str | None]:
    """Of what a recording depends on; None: not installed."""
    found: dict[str, str | None] = {"python": platform.python_version(), "system": sys.platform}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found
