"""Decode live twinlink traffic with nothing but pyzmq: python raw_reader.py tcp://127.0.0.1:7447 [bind]."""

import struct
import sys

import zmq

HEADER = struct.Struct("!2sBBIQQQ")  # magic, version, kind, length of the body, epoch, sequence, sent_ns
socket = zmq.Context().socket(zmq.SUB)
socket.subscribe(b"traffic/")
socket.subscribe(b"ack/")
socket.bind(sys.argv[1]) if "bind" in sys.argv[2:] else socket.connect(sys.argv[1])
while True:
    topic, frame, *_ = *socket.recv_multipart(), b""
    if len(frame) < HEADER.size:
        continue
    magic, version, kind, length, epoch, sequence, sent_ns = HEADER.unpack_from(frame)
    body = frame[HEADER.size :]
    if (magic, version, length) != (b"TL", 1, len(body)):
        continue
    print(topic.decode(), f"{epoch:016x}", sequence, sent_ns, end=" ")
    if kind == 1:
        print("data", len(body), body[:16].hex())
    elif kind == 2:
        acked_epoch, consumed = struct.unpack_from("!QQ", body)
        print("ack", f"{acked_epoch:016x}", consumed, *struct.iter_unpack("!QQQ", body[16:]))
    else:
        print("hello" if kind == 3 else "bye", body.decode())
    sys.stdout.flush()
