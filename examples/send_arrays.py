"""Sends ten numpy arrays to examples/receive_arrays.py."""

import numpy as np

import twinlink

with twinlink.open("zeromq", connect="tcp/127.0.0.1:7447", node="gnb-1") as link:
    link.wait_ready(timeout=10)  # until the receiver is up, or twinlink.PeerTimeout
    sender = link.sender("samples")
    for number in range(10):
        sender.send_array(np.full((2, 1024), number, np.complex64))  # dtype and shape travel along
    sender.flush(timeout=1)  # until every array is acknowledged, or twinlink.AckTimeout
    print(sender.stats()["acknowledged"], "arrays acknowledged")
