"""The frames of the bare libraries: data and acks of a link, octet for octet (docs/protocol.md).

Both sides of a comparison so carry as many octets.  The codec is the instrument's own: it must not run the code that it
measures.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import chain

HEADER = struct.Struct("!IIQQQ")  # magic + version + kind as one word, octets of the body, epoch, sequence, T1 or T3
HEADER_OCTETS = HEADER.size
DATA_WORD, ACK_WORD = 0x544C0101, 0x544C0102  # "TL", version 1, kind
MAX_PAYLOAD = 16 * 1024 * 1024  # octets, as a link's

# The body of an ack: epoch of the data, the first sequence not consumed, and for each message sequence, T1 and T2.
ACK_HEAD = struct.Struct("!QQ")
ACK_RECORD = struct.Struct("!QQQ")
ACK_ONE = struct.Struct("!IIQQQ" + "QQ" + "QQQ")  # header and body with one record, in one call
ACK_ONE_LENGTH = ACK_HEAD.size + ACK_RECORD.size
MAX_BATCH = 64  # messages in an ack, as in those of a link for messages that arrive in frames of their own

Record = Sequence[int]  # sequence, T1, T2


def ack(epoch: int, number: int, sent_ns: int, acked_epoch: int, consumed: int, records: Sequence[Record]) -> bytes:
    """The frame of an ack for at least one message; ``number`` is its own."""
    octets = ACK_HEAD.size + len(records) * ACK_RECORD.size
    numbers = chain((acked_epoch, consumed), *records)
    return struct.pack(f"!II{5 + 3 * len(records)}Q", ACK_WORD, octets, epoch, number, sent_ns, *numbers)


def parse_ack(frame: bytes | memoryview) -> tuple[int, Iterable[Record]]:
    """The acked epoch and the records of the frame of an ack; no record if its length is not that of one."""
    size = len(frame) - HEADER_OCTETS - ACK_HEAD.size
    if size < 0 or size % ACK_RECORD.size:
        return 0, ()
    return ACK_HEAD.unpack_from(frame, HEADER_OCTETS)[0], ACK_RECORD.iter_unpack(frame[HEADER_OCTETS + ACK_HEAD.size :])
