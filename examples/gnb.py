"""The Real World: sends 100 spectrum records to the Digital Twin, one every 10 ms."""

import time

import numpy as np

import twinlink
from twinlink.spectrum import Spectrum

noise = np.random.default_rng()
with twinlink.open("zeromq", connect="tcp/127.0.0.1:7447", node="gnb-1") as link:
    link.wait_ready(timeout=10)  # until the twin is up, or twinlink.PeerTimeout
    sender = link.sender("spectrum")
    for _ in range(100):
        samples = noise.normal(0, 200, (106 * 12, 2)).astype(np.int16)  # I and Q of 106 PRBs
        sender.send(Spectrum(samples, 106, scs_hz=30_000, centre_hz=3.6e9, observed_ns=time.time_ns()).encode())
        time.sleep(0.01)
    sender.flush(timeout=1)  # until every record is acknowledged, or twinlink.AckTimeout
    print(sender.stats()["acknowledged"], "records acknowledged")
