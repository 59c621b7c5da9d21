"""``twinlink-exporter`` that distorts what it sends after it has heard it; a line on its input says how from then on.

| line      | distortion of flow ``spectrum``                          |
|-----------|----------------------------------------------------------|
| none      |                                                          |
| drop P    | each record is dropped with this probability             |
| gain DB   | samples are amplified, and rounded                       |
| shift N   | the lowest N PRBs come behind the highest                |
| stale S   | records are sent so many seconds later                   |

Its first argument is the seed.
"""

import sys
import threading
import time
from collections import deque
from dataclasses import replace

import numpy as np
from twinlink_exporter.__main__ import main
from twinlink_exporter.exporter import Exporter

from twinlink.spectrum import SUBCARRIERS_PER_PRB, Spectrum


class Distortion:
    """Stands between an exporter and its flow ``spectrum``."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._kind, self._value = "none", 0.0
        self._late: deque[tuple[float, bytes]] = deque()

    def listen(self) -> None:
        """Take lines until there are no more."""
        for line in sys.stdin:
            kind, _, value = line.strip().partition(" ")
            self._kind, self._value = kind, float(value or 0)

    def of(self, payload: bytes) -> list[bytes]:
        """The payloads to send now, in place of one."""
        kind, value = self._kind, self._value
        due = []
        if kind == "stale":
            self._late.append((time.monotonic() + value, payload))
        while self._late and (kind != "stale" or self._late[0][0] <= time.monotonic()):
            due.append(self._late.popleft()[1])
        if kind == "stale" or (kind == "drop" and self._rng.random() < value):
            return due
        return [*due, self._changed(payload)]

    def _changed(self, payload: bytes) -> bytes:
        if self._kind not in ("gain", "shift"):
            return payload
        spectrum = Spectrum.decode(payload)
        samples = spectrum.samples
        if self._kind == "gain":
            samples = np.clip(np.rint(samples * 10 ** (self._value / 20)), -32768, 32767).astype(np.int16)
        else:
            samples = np.roll(samples, -int(self._value) * SUBCARRIERS_PER_PRB, axis=0)
        return replace(spectrum, samples=np.ascontiguousarray(samples)).encode()


if __name__ == "__main__":
    distortion = Distortion(int(sys.argv[1]))
    threading.Thread(target=distortion.listen, daemon=True).start()
    observe = Exporter._observe

    def distorted(self: Exporter, payload: bytes) -> None:
        for each in distortion.of(payload):
            observe(self, each)

    Exporter._observe = distorted  # type: ignore[method-assign]
    sys.exit(main(sys.argv[2:]))
