"""Sends a numpy array twenty times a second for a minute, to every program that connects."""

import time

import numpy as np

import twinlink

with twinlink.open("zeromq", listen="tcp/127.0.0.1:7447", node="gnb-1") as link:
    link.wait_ready(timeout=60)  # until a program has connected, or twinlink.PeerTimeout
    sender = link.sender("samples")
    for number in range(1200):
        sender.send_array(np.full((2, 1024), number, np.complex64))  # dtype and shape travel along
        time.sleep(0.05)
print(sender.stats()["acknowledged"], "of 1200 arrays acknowledged")  # leaving `with` has waited for the last ack
