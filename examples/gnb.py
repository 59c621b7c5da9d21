"""The Real World: sends I and Q of an uplink for half a minute, a spectrum record every 10 ms."""

import time

import numpy as np

import twinlink
from twinlink.spectrum import Spectrum

noise = np.random.default_rng()
with twinlink.open("zeromq", listen="tcp/127.0.0.1:7447", node="gnb-1") as link:
    link.wait_ready(timeout=60)  # until a twin has connected, or twinlink.PeerTimeout
    sender = link.sender("spectrum")
    for _ in range(3000):
        samples = noise.normal(0, 200, (106 * 12, 2)).astype(np.int16)  # I and Q of 106 PRBs
        sender.send(Spectrum(samples, 106, scs_hz=30_000, centre_hz=3.6e9, observed_ns=time.time_ns()).encode())
        time.sleep(0.01)
print(sender.stats()["acknowledged"], "of 3000 records acknowledged")  # leaving `with` has waited for the last ack
