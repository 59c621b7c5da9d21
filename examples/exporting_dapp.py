"""A dApp on the dApp library's own spectrum-sharing dApp that also exports what it hears to the digital twin.

    pip install dapps==0.0.6
    python examples/exporting_dapp.py tcp/10.0.0.5:7447

It goes on sensing and controlling as before; each symbol leaves for the twin first.
"""

import sys
import time

import numpy as np
from spectrum.spectrum_dapp import SpectrumSharingDApp
from twinlink_e3 import natural_from_fft

import twinlink
from twinlink.spectrum import Spectrum


class ExportingDApp(SpectrumSharingDApp):  # type: ignore[misc]  # the library has no types
    """Exports each symbol in natural PRB order, then lets the dApp do its work."""

    def _handle_indication(self, dapp_identifier: int, data: bytes) -> None:
        observed_ns = time.time_ns()
        bins = np.frombuffer(self.decode_iq_data_indication(data)["iqSamples"], "<i2").reshape(-1, 2)
        carrier = self.num_prbs, self.num_subcarrier_spacing * 1000, self.center_freq
        exported.send(Spectrum(natural_from_fft(bins, self.num_prbs), *carrier, observed_ns).encode())
        super()._handle_indication(dapp_identifier, data)


twin = sys.argv[1] if len(sys.argv) == 2 else sys.exit("usage: exporting_dapp.py tcp/HOST:PORT, where the twin listens")
with twinlink.open("zeromq", connect=twin, node="gnb-1") as link:
    exported = link.sender("spectrum")
    dapp = ExportingDApp(link="zmq", transport="ipc", e_sampling=True)  # 1536 bins: 3/4 sampling
    dapp.setup_connection()[0] or sys.exit("no E3 agent at /tmp/dapps/setup: start the gNB, or twinlink-ran-emulator")
    time.sleep(0.5)  # the library's sockets connect in the background, and say nothing when they have
    dapp.send_subscription_request()
    dapp.control_loop()
