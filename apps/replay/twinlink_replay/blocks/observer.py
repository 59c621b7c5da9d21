"""Observer: the sink of the headless flowgraph, which restores records from samples and tags."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlink.slots import ALL_SYMBOLS, SYMBOLS, Content
from twinlink.spectrum import SUBCARRIERS_PER_PRB

from .assembler import PacketAssembler
from .gnuradio_compat import gr, keep, pmt, time_of
from .guarded_block import GuardedBlock
from .packet import int16_of

NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True)
class Record:
    """One OFDM symbol at the end of the flowgraph, or the power of its PRBs.

    Attributes:
        samples: int16, shape ``(n_prbs * 12, 2)``, in LSB of the gNB; with ``power``, none.
        sequence, epoch: the message's sequence number and the sender's session.
        observed_ns, sent_ns, received_ns: Unix times; the first two by the exporter's clock.
        e3_timestamp: of the E3 indication, or -1.
        scs_hz, centre_hz: subcarrier spacing and centre of the PRBs.
        first_prb: number of the first PRB in the carrier.
        power: float32, shape ``(n_prbs,)``, in LSB^2; None if there are samples.
        place: system frame number, slot in the frame, and mask of the symbols of this record; None if it is not of a
            whole slot.
    """

    samples: NDArray[np.int16]
    sequence: int
    epoch: int
    observed_ns: int
    sent_ns: int
    received_ns: int
    e3_timestamp: int
    scs_hz: int
    centre_hz: float
    first_prb: int = 0
    power: NDArray[np.float32] | None = None
    place: tuple[int, int, int] | None = None

    @property
    def n_prbs(self) -> int:
        """PRBs in the record."""
        return len(self.samples) // SUBCARRIERS_PER_PRB if self.power is None else len(self.power)


class Observer(GuardedBlock, gr.sync_block):  # type: ignore[misc]
    """Sink for the stream of a `Source` with payload ``spectrum``.

    Args:
        on_records: called with complete records, on the flowgraph's thread.

    Attributes:
        error: the first exception of ``on_records``, after which it is not called again; None if there is none.
    """

    def __init__(self, on_records: Callable[[list[Record]], None]) -> None:
        gr.sync_block.__init__(self, name="Twinlink Observer", in_sig=[np.complex64], out_sig=None)
        keep(self)
        self._on_records = on_records
        self._packets = PacketAssembler(partial(self._on_exception, then="its samples are left out"))
        self.error: Exception | None = None

    def work(self, input_items: list[Any], output_items: list[Any]) -> int:
        """Called by the scheduler."""
        packets = self._packets.add(self, input_items[0])
        records = []
        for samples, tags in packets:
            try:
                records += records_of(samples, tags)
            except Exception as error:  # a tag that another block made or lost
                self._on_exception(error, "the packet is left out, and the next taken")
        if records and self.error is None:
            try:
                self._on_records(records)
            except Exception as error:
                self.error = error
                self._on_exception(error, "no further records are analysed")
        return len(input_items[0])


def records_of(samples: NDArray[np.complex64], tags: dict[str, Any]) -> list[Record]:
    """The records of a packet: one, or of a slot one for each symbol of the first antenna."""
    if "slot" not in tags:
        return [record_of(samples, tags)]
    slot = pmt.to_python(tags["slot"])
    symbols = slot["symbols"] & ALL_SYMBOLS
    masks = [symbols] if slot["slot_mean"] else [1 << number for number in range(SYMBOLS) if symbols >> number & 1]
    is_power = slot["content"] != Content.IQ
    width = slot["n_prbs"] * (1 if is_power else SUBCARRIERS_PER_PRB)
    nothing = np.zeros((0, 2), np.int16)
    return [
        Record(
            samples=nothing if is_power else int16_of(symbol),
            sequence=int(pmt.to_uint64(tags["sequence"])),
            epoch=int(pmt.to_uint64(tags["epoch"])),
            observed_ns=time_of(tags["rx_time"]),
            sent_ns=int(pmt.to_uint64(tags["sent_ns"])),
            received_ns=int(pmt.to_uint64(tags["received_ns"])),
            e3_timestamp=slot["timestamp"],
            scs_hz=slot["scs_hz"],
            centre_hz=pmt.to_double(tags["rx_freq"]),
            first_prb=slot["first_prb"],
            power=symbol.real if is_power else None,
            place=(slot["sfn"], slot["slot"], mask),
        )
        for symbol, mask in zip(samples[: len(masks) * width].reshape(-1, width), masks, strict=True)
    ]


def record_of(samples: NDArray[np.complex64], tags: dict[str, Any]) -> Record:
    """A record from a packet's samples, complex64, shape ``(n_prbs * 12,)``, and the tags of its first sample."""
    e3 = pmt.to_python(tags["e3"]) if "e3" in tags else {}
    rate_hz = pmt.to_double(tags["rx_rate"])
    return Record(
        samples=int16_of(samples),
        sequence=int(pmt.to_uint64(tags["sequence"])),
        epoch=int(pmt.to_uint64(tags["epoch"])),
        observed_ns=time_of(tags["rx_time"]),
        sent_ns=int(pmt.to_uint64(tags["sent_ns"])),
        received_ns=int(pmt.to_uint64(tags["received_ns"])),
        e3_timestamp=int(e3.get("timestamp", NO_TIMESTAMP)),
        scs_hz=round(rate_hz / len(samples)),
        centre_hz=pmt.to_double(tags["rx_freq"]),
    )
