"""What is sent of each slot: chosen on the command line, and named in the head of each message (`twinlink.slots`)."""

import argparse
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlink.appkit import convert
from twinlink.appkit.options import Parser
from twinlink.errors import ConfigurationError
from twinlink.prbs import format_prbs, parse_prbs
from twinlink.slots import (
    ALL_SYMBOLS,
    MAX_ANTENNAS,
    MAX_SLOTS,
    SYMBOLS,
    Content,
    SlotSpectrum,
    db_octets,
    power_per_prb,
    require_compression,
)

CONTENTS = {"iq": Content.IQ, "power": Content.POWER, "power-db": Content.POWER_DB}
BETA = 1 / 2048


@dataclass(frozen=True, slots=True)
class Reduction:
    """What is sent of each slot.

    Attributes:
        every: of so many slots, one is sent.
        symbols: mask of the symbols that are sent, if they are uplink.
        antennas: numbers of the antennas that are sent, if they exist.
        first_prb, n_prbs: range of PRBs; None: up to the carrier's last.
        content: I/Q or power.
        slot_mean: power is the mean over the symbols.
        compress: by blosc2.
        slots_per_message: at most, of those that come within 5 ms.
        beta: of the gNB: a value is its int16 times beta.
    """

    every: int = 1
    symbols: int = ALL_SYMBOLS
    antennas: tuple[int, ...] = (0,)
    first_prb: int = 0
    n_prbs: int | None = None
    content: Content = Content.IQ
    slot_mean: bool = False
    compress: bool = False
    slots_per_message: int = 1
    beta: float = BETA

    def head(self, n_prbs_carrier: int, scs_hz: int, centre_hz: float, antennas: tuple[int, ...]) -> SlotSpectrum:
        """A message without slots.  Raises ConfigurationError if the PRBs are not of the carrier."""
        n_prbs = n_prbs_carrier - self.first_prb if self.n_prbs is None else self.n_prbs
        if n_prbs < 1 or self.first_prb + n_prbs > n_prbs_carrier:
            raise ConfigurationError(f"--prbs: the carrier has PRBs 0-{n_prbs_carrier - 1}")
        return SlotSpectrum(
            n_prbs_carrier, self.first_prb, n_prbs, antennas, scs_hz, centre_hz, self.beta,
            self.content, self.slot_mean, self.every,
        )  # fmt: skip

    def reduce(self, head: SlotSpectrum, samples: NDArray[np.float16]) -> NDArray[np.generic]:
        """The data of a slot, from its I/Q, shape ``(antennas, symbols, PRBs * 12, 2)``."""
        if self.content is Content.IQ:
            return samples
        power = power_per_prb(head.float16_in_lsb(samples))
        if self.slot_mean:
            power = power.mean(axis=1, keepdims=True)
        return db_octets(power) if self.content is Content.POWER_DB else power


def add_reduction_arguments(parser: Parser) -> None:
    """Add the options that `reduction_of` reads."""
    group = parser.group("what is sent of each slot (I/Q in shared memory)")
    group.add_argument("--every", type=convert.whole(1, 65535), default=1, metavar="N", help="one of N slots")
    group.add_argument(
        "--symbols", type=_symbols, default=ALL_SYMBOLS, metavar="2-11", help="of the slot (0-13); uplink ones are sent"
    )
    group.add_argument("--antennas", type=_antennas, default=(0,), metavar="0,1", help="of the gNB (0)")
    group.add_argument("--prbs", type=_range, metavar="20-39", help="range of PRBs (default: those of the carrier)")
    group.add_argument("--content", choices=tuple(CONTENTS), default="iq", help="I/Q, or power per PRB")
    group.add_argument("--slot-mean", action="store_true", help="power as the mean over the symbols")
    group.add_argument("--compress", action="store_true", help="without loss, by blosc2 (extra: compression)")
    group.add_argument(
        "--slots-per-message",
        type=convert.whole(1, MAX_SLOTS),
        default=1,
        metavar="N",
        help="slots in a message, if they come at once",
    )
    group.add_argument(
        "--beta", type=convert.factor, default=BETA, metavar="1/128",
        help="what the gNB multiplies its int16 by: 1/2048, in OpenAirInterface for USRPs 1/128",
    )  # fmt: skip


def reduction_of(given: argparse.Namespace) -> Reduction:
    """Raises ConfigurationError for options that contradict each other, and CompressionMissing."""
    content = CONTENTS[given.content]
    if given.slot_mean and content is Content.IQ:
        raise ConfigurationError("--slot-mean is for power: add --content power or --content power-db")
    first, last = given.prbs or (0, None)
    reduction = Reduction(
        given.every, given.symbols, given.antennas, first, None if last is None else last - first + 1, content,
        given.slot_mean, given.compress, given.slots_per_message, given.beta,
    )  # fmt: skip
    reduction.head(given.n_prbs, given.scs_khz * 1000, given.centre_hz, given.antennas)
    if given.compress:
        require_compression()
    return reduction


def plan_of_reduction(reduction: Reduction) -> str:
    """A line for ``--check``."""
    symbols = format_prbs(symbol for symbol in range(SYMBOLS) if reduction.symbols >> symbol & 1)
    what = {Content.IQ: "I/Q", Content.POWER: "power", Content.POWER_DB: "power in dB"}[reduction.content]
    prbs = "all" if reduction.n_prbs is None else f"{reduction.first_prb}-{reduction.first_prb + reduction.n_prbs - 1}"
    every = "every slot" if reduction.every == 1 else f"one of {reduction.every} slots"
    mean = ", mean over the symbols" if reduction.slot_mean else ""
    return (
        f"of slots in shared memory: {what} of {every}, symbols {symbols}, antennas {format_prbs(reduction.antennas)}, "
        f"PRBs {prbs}, {reduction.slots_per_message} slot(s) a message"
        f"{mean}{', compressed' if reduction.compress else ''}; beta {reduction.beta:g}"
    )


def _range(text: str) -> tuple[int, int]:
    """For argparse: the first and the last number of a range."""
    found = re.fullmatch(r"(\d{1,3})(?:-(\d{1,3}))?", text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if last < first:
        raise argparse.ArgumentTypeError(f"a range is expected, such as 20-39, not {text!r}")
    return first, last


def _symbols(text: str) -> int:
    """For argparse: symbols and ranges of symbols, as a mask."""
    return sum(1 << number for number in _numbers(text, "symbols", SYMBOLS))


def _antennas(text: str) -> tuple[int, ...]:
    """For argparse: antennas and ranges of antennas."""
    return _numbers(text, "antennas", MAX_ANTENNAS)


def _numbers(text: str, what: str, end: int) -> tuple[int, ...]:
    try:
        numbers = sorted(parse_prbs(text))
    except ValueError:
        numbers = []
    if not numbers or numbers[-1] >= end:
        raise argparse.ArgumentTypeError(f"{what} from 0 to {end - 1} are expected, such as 0,2-5, not {text!r}")
    return tuple(numbers)
