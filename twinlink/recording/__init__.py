"""Recordings of a link as MCAP files that say what is missing from them (docs/recordings.md)."""

from ..errors import TwinlinkError


class RecordingMissing(TwinlinkError, ImportError):
    """A package that recordings need is not installed; the message names the extra that brings it."""


try:
    from .options import RecorderOptions
    from .playback import Playback, play
    from .reader import RecordingError
    from .recorder import Recorder
    from .verify import Report, repair, verify
except ModuleNotFoundError as error:
    raise RecordingMissing(
        f"{error.name}, which recordings need, is not installed: pip install 'twinlink[recording]'"
    ) from error

__all__ = [
    "Playback", "Recorder", "RecorderOptions", "RecordingError", "RecordingMissing", "Report", "play", "repair",
    "verify",
]  # fmt: skip
