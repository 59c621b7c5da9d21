"""``twinlink-ran-emulator`` that acknowledges blocks and schedules its UEs on the blocked PRBs all the same."""

import sys

from twinlink_ran_emulator.__main__ import main
from twinlink_ran_emulator.emulator import Emulator
from twinlink_ran_emulator.events import Event

if __name__ == "__main__":
    report = Emulator._report

    def reported(self: Emulator, event: Event) -> None:
        report(self, event)
        self._blocked[:] = False

    Emulator._report = reported  # type: ignore[method-assign]
    sys.exit(main())
