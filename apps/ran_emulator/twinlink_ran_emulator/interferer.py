"""The interferer: episodes of narrowband noise over a range of PRBs."""

from dataclasses import dataclass
from typing import Self

import numpy as np


@dataclass(frozen=True, slots=True)
class Episode:
    """One appearance of the interferer.

    Attributes:
        start_s: when it begins, in seconds from the start of the recording.
        duration_s: how long it lasts in seconds.
        first_prb: lowest PRB.
        n_prbs: PRBs covered.
        inr_db: interference to noise ratio per subcarrier in dB.
    """

    start_s: float
    duration_s: float
    first_prb: int
    n_prbs: int
    inr_db: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``START:DURATION:PRB:COUNT:INR``, for example ``1.0:2.0:80:8:30``; raises ValueError."""
        parts = text.split(":")
        if len(parts) != 5:
            raise ValueError(
                f"{text!r} is not START:DURATION:PRB:COUNT:INR (s, s, first PRB, PRBs, dB), such as 1:2:80:8:30"
            )
        return cls(float(parts[0]), float(parts[1]), int(parts[2]), int(parts[3]), float(parts[4]))

    def records(self, period_ms: float, n_records: int) -> range:
        """The records of the episode."""
        first = round(self.start_s * 1000 / period_ms)
        end = round((self.start_s + self.duration_s) * 1000 / period_ms)
        return range(min(first, n_records), min(end, n_records))


def draw_episodes(rng: np.random.Generator, seconds: float, n_prbs: int, inr_db: float) -> list[Episode]:
    """Episodes for a recording of that length: the first from 1.0 s to 3.0 s in the upper part of the carrier (above
    the PRBs that the dApp library's spectrum dApp never blocks), then shorter ones elsewhere, with varying levels."""
    size = max(2, n_prbs // 13)
    upper = int(0.75 * n_prbs)
    episodes = [Episode(1.0, 2.0, int(rng.integers(upper, n_prbs - size)), size, inr_db)]
    offsets_db = (-18.0, -6.0, -12.0, 0.0)
    start = 3.5
    while start + 0.3 < seconds:
        size = int(rng.integers(max(2, n_prbs // 26), max(4, n_prbs // 10)))
        last = episodes[-1]
        starts = [
            prb
            for prb in range(n_prbs - size + 1)
            if prb + size <= last.first_prb or prb >= last.first_prb + last.n_prbs
        ]
        duration = min(round(float(rng.uniform(0.6, 1.2)), 2), seconds - start)
        level_db = max(inr_db + offsets_db[(len(episodes) - 1) % len(offsets_db)], 6.0)
        episodes.append(Episode(round(start, 2), round(duration, 2), int(rng.choice(starts)), size, level_db))
        start += duration + float(rng.uniform(0.3, 0.6))
    return episodes
