"""A distribution of delays: how many were at most as long as each of `BUCKETS_S`."""

from bisect import bisect_left

BUCKETS_S = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip


class Histogram:
    """Delays by bucket; one thread adds, any may read.

    Attributes:
        counts: of the delays above the bucket before and at most as long as this one; the last is of those above all.
        sum_s: of all delays.
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.sum_s = 0.0

    def add(self, delay_ns: int) -> None:
        """A delay below 0, which clocks that differ can make of a short one, counts as 0."""
        delay_s = max(delay_ns, 0) / 1e9
        self.counts[bisect_left(BUCKETS_S, delay_s)] += 1
        self.sum_s += delay_s
