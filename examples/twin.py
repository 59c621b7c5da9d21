"""The Digital Twin: receives the spectrum records that examples/gnb.py sends, from the next one on."""

import twinlink
from twinlink.spectrum import Spectrum

with twinlink.open("zeromq", connect="tcp/127.0.0.1:7447", node="twin-1") as link:
    for message in link.receiver("spectrum"):
        record = Spectrum.decode(message.payload)
        delay_ms = (message.received_ns - message.sent_ns) / 1e6
        print(f"{message.node}: record {message.sequence}, {record.n_prbs} PRBs, {delay_ms:.2f} ms")
        if message.sequence == 2999:
            break
