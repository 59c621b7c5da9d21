"""Decode live twinlink traffic with nothing but pyzmq: python raw_reader.py tcp://127.0.0.1:7447 [bind]."""

import struct
import sys

import zmq

socket = zmq.Context().socket(zmq.SUB)
socket.subscribe(b"traffic/")
socket.subscribe(b"ack/")
socket.bind(sys.argv[1]) if "bind" in sys.argv[2:] else socket.connect(sys.argv[1])
while True:
    topic, frame, *_ = *socket.recv_multipart(), b""
    body = frame[32:]
    if len(frame) < 32 or frame[:3] != b"TL\x01" or int.from_bytes(frame[4:8]) != len(body):
        continue  # not twinlink's, or another version
    kind, (epoch, sequence, sent_ns) = frame[3], struct.unpack_from("!QQQ", frame, 8)
    print(topic.decode("ascii", "replace"), f"{epoch:016x}", sequence, sent_ns, end=" ")
    if kind == 2 and len(body) % 24 == 16:
        acked_epoch, consumed = struct.unpack_from("!QQ", body)
        print("ack", f"{acked_epoch:016x}", consumed, *struct.iter_unpack("!QQQ", body[16:]), flush=True)
    elif kind == 1:
        print("data", len(body), body[:16].hex(), flush=True)
    else:
        print({3: "hello", 4: "bye"}.get(kind, f"kind {kind}"), body.decode("utf-8", "replace"), flush=True)
