"""Makes the digests of flow ``digest`` (`twinlink.digest`): what was heard in each second, before it could be lost."""

import numpy as np
from numpy.typing import NDArray

from twinlink.digest import WINDOW_NS, Digest, Settings, Window, begin_of, is_sampled, slot_power, symbol_power
from twinlink.slots import SlotSpectrum
from twinlink.spectrum import Spectrum

LATE_NS = 1_200_000_000  # after its end a window is ready without a later record: a slot may have waited for a second


class Digests:
    """Used by the exporter's thread.

    Args:
        settings: of symbols; those of slots are in the heads of their messages.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = self._settings_of_symbols = settings
        self._head: SlotSpectrum | None = None
        self._window: Window | None = None
        self._missed = 0  # in this window
        self._ready: list[Digest] = []

    def add_symbol(self, spectrum: Spectrum) -> None:
        """A symbol was heard."""
        self._head = None
        self._set(self._settings_of_symbols)
        window = self._count(spectrum.observed_ns, 1)
        window.sample(symbol_power(spectrum.samples[None]))

    def add_slot(self, head: SlotSpectrum, observed_ns: int, samples: NDArray[np.float16], missing: int) -> None:
        """The I/Q of a slot was read, of shape ``(antennas, symbols, PRBs * 12, 2)``, before anything is reduced.

        ``missing``: slots before it that could not be read.
        """
        if head is not self._head:
            self._head = head
            self._set(
                Settings(
                    head.n_prbs_carrier, head.first_prb, head.n_prbs, head.scs_hz, head.centre_hz, int(head.content),
                    head.slot_mean, head.every,
                )
            )  # fmt: skip
        records = 1 if head.slot_mean else samples.shape[1]
        window = self._count(observed_ns, records)
        self._missed += missing * records
        if is_sampled(observed_ns, whole_slot=True):
            window.sample(slot_power(head, samples, head.slot_mean))

    def take(self, now_ns: int) -> list[Digest]:
        """The digests that are ready at this Unix time, oldest first; windows without a record have theirs, too."""
        if self._window is None:
            self._window = Window(begin_of(now_ns))
        if now_ns >= self._window.begin_ns + WINDOW_NS + LATE_NS:
            self._end(self._window)
            self._window = Window(max(self._window.begin_ns + WINDOW_NS, begin_of(now_ns - LATE_NS)))
        elif now_ns < self._window.begin_ns - LATE_NS:  # the clock was set back
            self._end(self._window)
            self._window = Window(begin_of(now_ns))
        ready, self._ready = self._ready, []
        return ready

    def answer(self, now_ns: int) -> Digest:
        """The digest of the window that has not ended, for a request."""
        window = self._window or Window(begin_of(now_ns))
        return window.digest(self._settings, self._missed, answer=True)

    def _set(self, settings: Settings) -> None:
        if settings != self._settings:
            self._settings, self._window = settings, None  # what a window holds is of one kind

    def _count(self, observed_ns: int, records: int) -> Window:
        """The window in which records are counted: theirs; if its digest was sent, the present one."""
        begin_ns, window = begin_of(observed_ns), self._window
        if window is None or begin_ns > window.begin_ns or begin_ns < window.begin_ns - LATE_NS:
            if window is not None:
                self._end(window)
            self._window = window = Window(begin_ns)
        window.count(max(observed_ns, window.begin_ns), records)
        return window

    def _end(self, window: Window) -> None:
        self._ready.append(window.digest(self._settings, self._missed))
        self._missed = 0
