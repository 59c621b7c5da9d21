"""What I/Q a recording has, found by a first reading: which recordings of SigMF it gives, and of what form."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from twinlink.errors import ConfigurationError, MalformedPayload
from twinlink.slots import Content, SlotSpectrum
from twinlink.spectrum import SUBCARRIERS_PER_PRB, Spectrum

from .source import Message, wants
from .spectra import spectrum_of

MAX_RECORDINGS = 256  # of SigMF; a sender that changes its layout with each message must not fill a folder


class Layout(NamedTuple):
    """What the records of a recording of SigMF have in common.

    Attributes:
        head: of the messages, without slots and carrier centre; None: they are single symbols.
        n_prbs, first_prb, n_prbs_carrier: PRBs of the records, and where they are in the carrier.
        fft_size: of single symbols.
    """

    head: SlotSpectrum | None
    n_prbs: int
    first_prb: int
    n_prbs_carrier: int
    antennas: tuple[int, ...]
    scs_hz: int
    fft_size: int | None = None

    @classmethod
    def of(cls, found: Spectrum | SlotSpectrum) -> "Layout":
        """The layout of a message."""
        if isinstance(found, Spectrum):
            return cls(None, found.n_prbs, 0, found.n_prbs, (0,), found.scs_hz, found.fft_size)
        head = replace(found, slots=(), centre_hz=0.0)
        return cls(head, found.n_prbs, found.first_prb, found.n_prbs_carrier, found.antennas, found.scs_hz)

    @property
    def prb_hz(self) -> float:
        """Width of a PRB."""
        return float(SUBCARRIERS_PER_PRB * self.scs_hz)

    def edge_hz(self, centre_hz: float, prb: int) -> float:
        """Lower edge of a PRB of the carrier."""
        return centre_hz + (prb - self.n_prbs_carrier / 2) * self.prb_hz


Key = tuple[str, int, Layout]  # flow and epoch


@dataclass
class Facts:
    """What a first reading has found of the messages of a key.

    Attributes:
        symbols: mask of those that occur in the slots.
        halves: some samples are float16.
    """

    symbols: int = 0
    halves: bool = False


class Survey:
    """The first reading: what I/Q there is.

    Attributes:
        found: by key.
        malformed: messages that begin as a spectrum and cannot be read, and why the first one cannot.
    """

    def __init__(self, flows: Sequence[str]) -> None:
        self.found: dict[Key, Facts] = {}
        self.malformed, self.problem = 0, ""
        self._flows = flows

    def look(self, message: Message) -> None:
        """Take in a message."""
        if not wants(message.flow, self._flows):
            return
        try:
            found = iq_of(message)
        except MalformedPayload as error:
            self.malformed += 1
            self.problem = self.problem or f"message {message.sequence} of flow {message.flow}: {error}"
            return
        if found is None:
            return
        key = message.flow, message.epoch, Layout.of(found)
        if key not in self.found and len(self.found) >= MAX_RECORDINGS:
            raise ConfigurationError(
                f"the I/Q has more than {MAX_RECORDINGS} layouts, each of which would be a recording of SigMF: choose "
                "with --flows"
            )
        facts = self.found.setdefault(key, Facts())
        for slot in found.slots if isinstance(found, SlotSpectrum) else ():
            facts.symbols |= slot.symbols
            facts.halves |= slot.data.dtype == np.float16


def iq_of(message: Message) -> Spectrum | SlotSpectrum | None:
    """The I/Q of a message; None: it has none."""
    found = spectrum_of(message.flow, message.payload)
    if isinstance(found, SlotSpectrum) and (found.content is not Content.IQ or found.slot_mean):
        return None
    return found
