"""The Digital Twin: receives the 100 records that examples/gnb.py sends."""

import twinlink
from twinlink.spectrum import Spectrum

with twinlink.open("zeromq", listen="tcp/127.0.0.1:7447", node="twin-1") as link:
    for message in link.receiver("spectrum"):
        record = Spectrum.decode(message.payload)
        delay_ms = (message.received_ns - message.sent_ns) / 1e6
        print(f"{message.node}: record {message.sequence}, {record.n_prbs} PRBs, {delay_ms:.2f} ms")
        if message.sequence == 99:
            break
