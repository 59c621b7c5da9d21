"""A worker with a known error of its wall clock: `python -P shifted_clock.py OFFSET_NS DRIFT_PPM [...]`.

For tests with injected errors.  The clock is replaced before twinlink is imported, so every timestamp of this process
is off by ``OFFSET_NS`` plus ``DRIFT_PPM`` of the time since its start.  It is started as a file, because importing the
package would bind the real clock.
"""

import runpy
import sys
import time

_true_ns = time.time_ns


def main() -> None:
    """Shift the clock, then run a worker."""
    offset_ns, drift_ppb = int(sys.argv[1]), int(float(sys.argv[2]) * 1000)
    begin_ns = _true_ns()

    def shifted_ns() -> int:
        now_ns = _true_ns()
        return now_ns + offset_ns + (now_ns - begin_ns) * drift_ppb // 1_000_000_000

    time.time_ns = shifted_ns
    sys.argv[1:] = sys.argv[3:]
    runpy.run_module("twinlink_measure.worker", run_name="__main__")


if __name__ == "__main__":
    main()
