"""Receives the ten arrays that examples/send_arrays.py sends."""

import twinlink

with twinlink.open("zeromq", listen="tcp/127.0.0.1:7447", node="twin-1") as link:
    for message in link.receiver("samples"):
        array = message.array()
        print(f"{message.node}: array {message.sequence}, {array.dtype}, shape {array.shape}, mean {array.mean():.1f}")
        if message.sequence == 9:
            break
