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
from . import conditions

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
    before_s: float | None
    after_s: float | None
    on: Sequence[str]


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
        before_s: nothing is written until the recording is triggered, then also what came in so many seconds before,
            of which at most ``queue_octets`` are kept; None: everything is written.
        after_s: seconds from the last trigger to the end of a file; the next trigger begins the next one.  None: the
            recording goes on.
        on: what triggers it besides `Recorder.trigger`: names of events, such as ``gap`` or ``peer-down``;
            ``interferer``: a twin asks for a block of PRBs, or it was installed; ``flow:NAME``: a message on a flow.
    """

    flows: Sequence[str] = ("*",)
    queue_octets: int = QUEUE_OCTETS
    rotate_octets: int = ROTATE_OCTETS
    rotate_s: float | None = None
    min_free_octets: int = LEAST_FREE_OCTETS
    overwrite: bool = False
    before_s: float | None = None
    after_s: float | None = None
    on: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("flows", "on"):
            texts = getattr(self, name)
            if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
                raise ConfigurationError(f"{name} takes a list of names, not {texts!r}")
        conditions.check(self.on)
        for name, least in (("queue_octets", 1), ("rotate_octets", 1), ("min_free_octets", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ConfigurationError(f"{name} takes a whole number from {least}, not {value!r}")
        if self.rotate_s is not None and not (isinstance(self.rotate_s, int | float) and self.rotate_s > 0):
            raise ConfigurationError(f"rotate_s takes seconds above 0, or None, not {self.rotate_s!r}")
        for name in ("before_s", "after_s"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value >= 0):
                raise ConfigurationError(f"{name} takes seconds from 0, or None, not {value!r}")
        if self.before_s is None and (self.on or self.after_s is not None):
            raise ConfigurationError(
                "a triggered recording takes before_s (--before): what came so many seconds before the trigger is "
                "written, too; 0: nothing"
            )

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
