"""Decode live twinlink traffic with nothing but pyzmq: python raw_reader.py tcp://127.0.0.1:7447 [bind]."""

import struct
import sys

import zmq

NAMES = ["data", "ack", "hello", "bye", "retransmit", "nak"]
NAMES += ["abandoned", "bundle", "fragment", "progress", "ack range", "refused", "run"]
if "://" not in "".join(sys.argv[1:2]):
    sys.exit(__doc__)
socket = zmq.Context().socket(zmq.SUB)
socket.subscribe(b"")
(socket.bind if "bind" in sys.argv[2:] else socket.connect)(sys.argv[1])
while True:
    topic, rest, *_ = *socket.recv_multipart(), b""
    while rest[:3] == b"TL\x01" and 32 + int.from_bytes(rest[4:8]) <= len(rest):
        kind, length, epoch, sequence, sent_ns = struct.unpack_from("!3xBIQQQ", rest)
        size = 32 + (length if kind != 8 else 0)  # a bundle: what follows its header are frames
        body, rest = rest[32:size], rest[size:]
        numbers = " ".join(map(str, struct.unpack_from(f"!{len(body) // 8}Q", body)))
        text = {1: f"{len(body)} {body[:16].hex()}", 3: body.decode("utf-8", "replace")}.get(kind, numbers)
        if kind == 13:  # so many messages of so many octets each, and the first payload
            text = "{} of {} {}".format(*struct.unpack_from("!II", body), body[8:24].hex())
        name = NAMES[kind - 1] if 0 < kind <= len(NAMES) else kind
        print(topic.decode("ascii", "replace"), f"{epoch:016x}", sequence, sent_ns, name, text, flush=True)
