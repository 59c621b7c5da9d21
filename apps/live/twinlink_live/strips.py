"""Numbers over time: what flows of `Sender.send_array` carry, a few lines for each flow."""

import math
from collections import deque
from typing import Any

import numpy as np

from twinlink.errors import MalformedPayload
from twinlink.npy import decode
from twinlink.text_payload import is_array

MAX_LINES = (
    4  # an array of so many numbers has a line for each; of a longer one, the least, mean and greatest are shown
)
OF_MANY = "least", "mean", "greatest"
REPEATED = 20  # values in each state: a browser that misses some states misses no value


class Strip:
    """The values of one flow at each step; ``names`` are of its lines."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.newest_step = -REPEATED
        self._values: deque[tuple[int, list[float | None]]] = deque(maxlen=REPEATED)

    def add(self, payload: bytes | memoryview, step: int) -> None:
        """An array has come.  Raises MalformedPayload."""
        names, values = summary(payload)
        if names != self.names:
            self._values.clear()
            self.names = names
        self.newest_step = step
        self._values.append((step, [value if math.isfinite(value) else None for value in values]))

    def described(self) -> dict[str, Any]:
        """As JSON: the names, and of each of the last steps its number and the values."""
        return {"names": self.names, "values": [[step, *values] for step, values in self._values]}


def is_numbers(payload: bytes | memoryview) -> bool:
    """Whether a payload may have a strip, by its first octets."""
    return is_array(payload)


def summary(payload: bytes | memoryview) -> tuple[list[str], list[float]]:
    """The names and values of the lines; of complex numbers, their magnitudes.  Raises MalformedPayload."""
    array = decode(payload)
    if array.dtype.kind not in "buifc" or not array.size:
        raise MalformedPayload(f"an array of dtype {array.dtype} and {array.size} values is not drawn")
    numbers = np.abs(array) if array.dtype.kind == "c" else array
    if numbers.size <= MAX_LINES:
        return [f"[{place}]" for place in range(numbers.size)], [float(value) for value in numbers.flat]
    return list(OF_MANY), [float(numbers.min()), float(numbers.mean(dtype=float)), float(numbers.max())]
