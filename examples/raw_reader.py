"""Decode live twinlink traffic with nothing but pyzmq: python raw_reader.py tcp://127.0.0.1:7447 [bind]."""

import struct
import sys

import zmq

KINDS = {1: "data", 2: "ack", 3: "hello", 4: "bye", 5: "again", 6: "ask", 7: "gone"}
socket = zmq.Context().socket(zmq.SUB)
socket.subscribe(b"")
(socket.bind if "bind" in sys.argv[2:] else socket.connect)(sys.argv[1])
while True:
    topic, frame, *_ = *socket.recv_multipart(), b""
    if len(frame) < 32 or frame[:3] != b"TL\x01" or int.from_bytes(frame[4:8]) != len(frame) - 32:
        continue  # not twinlink's, or another version
    kind, epoch, sequence, sent_ns = struct.unpack_from("!3xB4xQQQ", frame)
    body, numbers = frame[32:], struct.unpack_from(f"!{(len(frame) - 32) // 8}Q", frame, 32)
    texts = {1: f"{len(body)} {body[:16].hex()}", 3: body.decode("utf-8", "replace")}
    text = texts.get(kind, " ".join(map(str, numbers)))
    print(topic.decode("ascii", "replace"), f"{epoch:016x}", sequence, sent_ns, KINDS.get(kind, kind), text, flush=True)
