"""Converts an E3 I/Q indication for the twin: cropped to the used subcarriers, in natural PRB order."""

from dataclasses import dataclass

import numpy as np
from twinlink_e3 import FFT_SIZES, IndicationMessage, IqDataIndication, MalformedPdu, natural_from_fft

from twinlink.spectrum import SUBCARRIERS_PER_PRB, Spectrum

OCTETS_PER_BIN = 4  # ci16_le


@dataclass(frozen=True, slots=True)
class Carrier:
    """The gNB's carrier, given by the operator, because E3 does not describe it.

    Attributes:
        n_prbs: PRBs of the carrier.
        scs_hz: subcarrier spacing in Hz.
        centre_hz: carrier centre frequency in Hz.
        fft_size: bins of a symbol; None: by the length of an indication.
        cell_id: of the cell that is exported, where the gNB indicates several; None: the first that it indicates.
    """

    n_prbs: int = 106
    scs_hz: int = 30_000
    centre_hz: float = 3.6192e9
    fft_size: int | None = None
    cell_id: int | None = None


def observe(message: IndicationMessage, data: IqDataIndication, carrier: Carrier, observed_ns: int) -> Spectrum:
    """The symbol in an indication of the spectrum service model, read from E3 at ``observed_ns``, Unix time.

    Raises MalformedPdu: it is not one symbol of the carrier.
    """
    fft_size, rest = divmod(len(data.iq_samples), OCTETS_PER_BIN)
    if rest or (fft_size != carrier.fft_size if carrier.fft_size else fft_size not in FFT_SIZES):
        expected = carrier.fft_size or f"one of {', '.join(map(str, FFT_SIZES))}"
        raise MalformedPdu(
            f"{len(data.iq_samples)} octets of I/Q are no symbol: expected bins of {OCTETS_PER_BIN} octets, "
            f"their number {expected}; see --fft-size"
        )
    if carrier.n_prbs * SUBCARRIERS_PER_PRB > fft_size:
        raise MalformedPdu(f"a symbol of {fft_size} bins cannot hold {carrier.n_prbs} PRBs; see --n-prbs")
    bins = np.frombuffer(data.iq_samples, "<i2").reshape(-1, 2)
    e3 = {
        "dapp_id": message.dapp_identifier,
        "ran_function_id": message.ran_function_identifier,
        "message_id": message.message_id,
        "sample_count": data.sample_count,
    }
    if data.timestamp is not None:
        e3["timestamp"] = data.timestamp
    return Spectrum(
        samples=natural_from_fft(bins, carrier.n_prbs),
        n_prbs=carrier.n_prbs,
        scs_hz=carrier.scs_hz,
        centre_hz=carrier.centre_hz,
        observed_ns=observed_ns,
        fft_size=fft_size,
        e3=e3,
    )
