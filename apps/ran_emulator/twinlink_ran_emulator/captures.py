"""The captures of a recording: segments from a sample on, which must be those of one carrier without a gap.

A capture can say that the receiver was retuned, that samples are missing before it, or that its time is another.  The
emulator plays one carrier at one period, so it refuses a recording whose captures say otherwise.
"""

from datetime import datetime
from itertools import pairwise
from typing import Any

from .schema import RecordingError
from .truth import Grid

_LEAP_SECOND = "23:59:60"


def check_captures(captures: list[dict[str, Any]], offset: int, grid: Grid) -> None:
    """Raise RecordingError unless all captures are segments of one recording in whole records.

    Args:
        captures: as in the metadata, checked against the schema; the first has a frequency.
        offset: ``core:offset``, the index of the first sample of the data.
        grid: the recording's.
    """
    begins = captures[0]["core:sample_start"]
    if begins != offset:
        raise RecordingError(
            f"captures[0].core:sample_start is {begins}, not {offset}: the first record begins with the data, whose "
            "first sample has the index core:offset (0 without it)"
        )
    times = [_time(f"captures[{index}]", capture) for index, capture in enumerate(captures)]
    for index, (before, capture) in enumerate(pairwise(captures), 1):
        _check_next(f"captures[{index}]", before, capture, offset, grid)
        earlier, time = times[index - 1 : index + 1]
        if earlier and time and time < earlier:
            raise RecordingError(f"captures[{index}].core:datetime is earlier than that of the capture before")


def _check_next(where: str, before: dict[str, Any], capture: dict[str, Any], offset: int, grid: Grid) -> None:
    start, total = capture["core:sample_start"], grid.n_records * grid.bins
    if start <= before["core:sample_start"]:
        raise RecordingError(f"{where}.core:sample_start is {start}, not behind that of the capture before")
    if start >= offset + total:
        raise RecordingError(
            f"{where}.core:sample_start is {start}, past the end of the data: {total} samples from {offset} on"
        )
    if (start - offset) % grid.bins:
        raise RecordingError(f"{where}.core:sample_start is {start}, inside a record of {grid.bins} samples")
    frequency_hz = capture.get("core:frequency")
    if frequency_hz != grid.centre_hz:
        told = "missing" if frequency_hz is None else f"{frequency_hz:.0f} Hz"
        raise RecordingError(
            f"{where}.core:frequency is {told}, and the first capture is at {grid.centre_hz:.0f} Hz: one carrier is "
            "played; split the recording where it was retuned"
        )
    gap = _global_index(capture) - _global_index(before) - (start - before["core:sample_start"])
    if gap:
        raise RecordingError(
            f"{where}.core:global_index says that {abs(gap)} samples {'are missing' if gap > 0 else 'overlap'} before "
            "it; split the recording there"
        )


def _global_index(capture: dict[str, Any]) -> int:
    return int(capture.get("core:global_index", capture["core:sample_start"]))


def _time(where: str, capture: dict[str, Any]) -> tuple[datetime, bool, int] | None:
    """``core:datetime``, in an order; None if there is none.

    The second, whether it is the leap second behind that one (23:59:60 in RFC 3339 section 5.7), and the microsecond.
    """
    text = capture.get("core:datetime")
    if text is None:
        return None
    try:
        if not text.endswith("Z"):
            raise ValueError
        is_leap = _LEAP_SECOND in text
        found = datetime.fromisoformat(text.replace(_LEAP_SECOND, "23:59:59"))
        return found.replace(microsecond=0), is_leap, found.microsecond
    except ValueError:
        raise RecordingError(f"{where}.core:datetime is {text!r}, not such as 2026-11-27T16:00:00Z") from None
