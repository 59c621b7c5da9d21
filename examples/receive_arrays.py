"""Receives the arrays that examples/send_arrays.py sends, from the next one on."""

import twinlink

with twinlink.open("zeromq", connect="tcp/127.0.0.1:7447", node="twin-1") as link:
    for message in link.receiver("samples"):
        array = message.array()
        print(f"{message.node}: array {message.sequence}, {array.dtype}, shape {array.shape}, mean {array.mean():.1f}")
        if message.sequence == 1199:
            break
