"""UADP: golden vectors, properties, and asyncua's PubSub over UDP in both directions."""

import asyncio
import struct
from typing import Any

import pytest
from asyncua import ua
from asyncua.common.utils import Buffer
from asyncua.pubsub import uadp as theirs
from asyncua.pubsub.udp import OpcUdp, UdpSettings
from hypothesis import given, settings
from hypothesis import strategies as some
from twinlink_measure.uadp import BuiltIn, DataSetMessage, NetworkMessage, PublisherIdType, UadpError, Variant
from twinlink_measure.uadp import decode as decoded
from twinlink_measure.uadp import encode as encoded

from twinlink.process.ports import free_ports
from twinlink.testing import patience

# Written by hand from the tables of OPC 10000-14, section 7.2.4.
VECTORS = {
    # version 1; no header; valid; one field, a Boolean
    "01 01 0100 01 01": NetworkMessage(messages=(DataSetMessage(fields=(Variant(BuiltIn.BOOLEAN, True),)),)),
    # PublisherId as Byte, without ExtendedFlags1; PayloadHeader with one id
    "51 07 01 0500 01 0100 05 3412": NetworkMessage(
        publisher_id=7,
        publisher_id_type=PublisherIdType.BYTE,
        messages=(DataSetMessage(writer_id=5, fields=(Variant(BuiltIn.UINT16, 0x1234),)),),
    ),
    # PublisherId as UInt16, whole GroupHeader, timestamp; two DataSetMessages with sizes, one of them a keep-alive
    "f1 21 ba08 0f 6400 04030201 0100 feff 02 0100 0200 0807060504030201 0700 0400 09 0300 0100 03 ff 89 03 0900": (
        NetworkMessage(
            publisher_id=2234,
            writer_group_id=100,
            group_version=0x01020304,
            network_message_number=1,
            sequence_number=0xFFFE,
            timestamp=0x0102030405060708,
            messages=(
                DataSetMessage(writer_id=1, sequence_number=3, fields=(Variant(BuiltIn.BYTE, 255),)),
                DataSetMessage(writer_id=2, keep_alive=True, sequence_number=9),
            ),
        )
    ),
    # PublisherId as String; raw fields; status and both versions
    "91 04 02000000 6162 73 0080 01000000 02000000 deadbeef": NetworkMessage(
        publisher_id="ab",
        publisher_id_type=PublisherIdType.STRING,
        messages=(DataSetMessage(raw=bytes.fromhex("deadbeef"), status=0x8000, major_version=1, minor_version=2),),
    ),
}


@pytest.mark.parametrize("text", VECTORS)
def test_golden_vectors(text: str) -> None:
    octets = bytes.fromhex(text)
    assert decoded(octets) == VECTORS[text]
    assert encoded(VECTORS[text]) == octets


def test_the_size_is_that_of_the_paper() -> None:
    """32 + 9 n octets with n variables of Int64."""
    for count, size in ((3, 59), (12, 140), (163, 1499)):
        message = NetworkMessage(
            publisher_id=2234,
            writer_group_id=100,
            messages=(
                DataSetMessage(
                    writer_id=62541, sequence_number=1, timestamp=1, major_version=1, minor_version=1,
                    fields=tuple(Variant(BuiltIn.INT64, number) for number in range(count)),
                ),
            ),
        )  # fmt: skip
        assert len(encoded(message)) == size


def maybe(values: Any) -> Any:
    return some.none() | values


def unsigned(bits: int) -> Any:
    return some.integers(0, 2**bits - 1)


def signed(bits: int) -> Any:
    return some.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


variants = some.one_of(
    some.builds(Variant, some.just(BuiltIn.BOOLEAN), some.booleans()),
    some.builds(Variant, some.just(BuiltIn.SBYTE), signed(8)),
    some.builds(Variant, some.just(BuiltIn.INT16), signed(16)),
    some.builds(Variant, some.just(BuiltIn.UINT32), unsigned(32)),
    some.builds(Variant, some.just(BuiltIn.INT64), signed(64)),
    some.builds(Variant, some.just(BuiltIn.UINT64), unsigned(64)),
    some.builds(Variant, some.just(BuiltIn.FLOAT), some.floats(width=32, allow_nan=False)),
    some.builds(Variant, some.just(BuiltIn.DOUBLE), some.floats(allow_nan=False)),
    some.builds(Variant, some.just(BuiltIn.DATE_TIME), signed(64)),
    some.builds(Variant, some.just(BuiltIn.STRING), maybe(some.text(max_size=20))),
    some.builds(Variant, some.just(BuiltIn.BYTE_STRING), maybe(some.binary(max_size=20))),
)
publishers = some.one_of(
    some.tuples(some.just(PublisherIdType.BYTE), unsigned(8)),
    some.tuples(some.just(PublisherIdType.UINT16), unsigned(16)),
    some.tuples(some.just(PublisherIdType.UINT32), unsigned(32)),
    some.tuples(some.just(PublisherIdType.UINT64), unsigned(64)),
    some.tuples(some.just(PublisherIdType.STRING), some.text(max_size=10)),
    some.just((PublisherIdType.UINT16, None)),
)


@some.composite
def data_set_messages(draw: Any, writer_id: int | None) -> DataSetMessage:
    what = draw(some.sampled_from(("fields", "raw", "keep alive")))
    return DataSetMessage(
        writer_id=writer_id,
        fields=tuple(draw(some.lists(variants, max_size=4))) if what == "fields" else (),
        raw=draw(some.binary(max_size=20)) if what == "raw" else None,
        keep_alive=what == "keep alive",
        valid=draw(some.booleans()),
        sequence_number=draw(maybe(unsigned(16))),
        timestamp=draw(maybe(signed(64))),
        pico_seconds=draw(maybe(unsigned(16))),
        status=draw(maybe(unsigned(16))),
        major_version=draw(maybe(unsigned(32))),
        minor_version=draw(maybe(unsigned(32))),
    )


@some.composite
def network_messages(draw: Any) -> NetworkMessage:
    ids = draw(some.one_of(some.just([None]), some.lists(unsigned(16), min_size=1, max_size=3)))
    kind, publisher_id = draw(publishers)
    return NetworkMessage(
        messages=tuple(draw(data_set_messages(each)) for each in ids),
        publisher_id=publisher_id,
        publisher_id_type=kind,
        writer_group_id=draw(maybe(unsigned(16))),
        group_version=draw(maybe(unsigned(32))),
        network_message_number=draw(maybe(unsigned(16))),
        sequence_number=draw(maybe(unsigned(16))),
        timestamp=draw(maybe(signed(64))),
        pico_seconds=draw(maybe(unsigned(16))),
    )


@given(network_messages())
@settings(max_examples=150, deadline=None)
def test_what_is_encoded_is_decoded(message: NetworkMessage) -> None:
    assert decoded(encoded(message)) == message


def is_refused(octets: bytes) -> bool:
    """Whether octets are refused; otherwise they are a message like any other."""
    try:
        message = decoded(octets)
    except UadpError:
        return True
    assert decoded(encoded(message)) == message or "nan" in repr(message)
    return False


@given(some.binary(max_size=80))
@settings(max_examples=200, deadline=None)
def test_any_octets_are_a_message_or_refused(octets: bytes) -> None:
    is_refused(octets)


@given(network_messages(), some.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_message_is_another_message_or_refused(message: NetworkMessage, data: Any) -> None:
    octets = bytearray(encoded(message))
    place = data.draw(some.integers(0, len(octets) - 1))
    octets[place : place + data.draw(some.integers(0, 4))] = data.draw(some.binary(max_size=4))
    is_refused(bytes(octets))


@given(network_messages(), some.data())
@settings(max_examples=100, deadline=None)
def test_a_message_that_is_cut_is_never_read_beyond_its_end(message: NetworkMessage, data: Any) -> None:
    octets = encoded(message)
    has_end = all(each.raw is None for each in message.messages)  # raw fields end with the message
    assert is_refused(octets[: data.draw(some.integers(0, len(octets) - 1))]) or not has_end


@pytest.mark.parametrize(
    ("octets", "told"),
    [
        ("02", "UADP version 2; this codec reads version 1"),
        ("81 18", "with DataSetClassId, security is not read"),
        ("d1 81 01 ba08 01 0500", r"with chunks is not read \(ExtendedFlags1 0x81, ExtendedFlags2 0x01\)"),
        ("81 80 e6", "with promoted fields, discovery, reserved flags is not read"),
        ("91 06 00", "type 6 of a PublisherId is reserved"),
        ("01 01 0100 86 00", "an array"),
        ("01 01 0100 01 01 00", "1 octets follow the last field"),
        ("01 05 0000", "field encoding 2 is not read"),
        ("01 01 0100 0f 05000000 00", "5 octets are announced"),
        ("", "1 octets are announced at octet 0, and 0 are there"),
    ],
)
def test_what_cannot_be_read_is_said(octets: str, told: str) -> None:
    with pytest.raises(UadpError, match=told):
        decoded(bytes.fromhex(octets))


def test_a_publisher_id_that_is_a_null_string_is_read_as_an_empty_one() -> None:
    message = decoded(bytes.fromhex("91 04 ffffffff 01 0100 01 01"))
    assert message.publisher_id == ""
    assert decoded(encoded(message)) == message


def test_what_cannot_be_encoded_is_said() -> None:
    for message in (
        NetworkMessage(messages=()),
        NetworkMessage(messages=(DataSetMessage(), DataSetMessage())),
        NetworkMessage(messages=(DataSetMessage(keep_alive=True, raw=b"1"),)),
        NetworkMessage(messages=(DataSetMessage(fields=(Variant(BuiltIn.BYTE, 256),)),)),
        NetworkMessage(messages=(DataSetMessage(),), publisher_id=70_000),
    ):
        with pytest.raises(UadpError):
            encoded(message)


# asyncua 2.1


def example(kind: PublisherIdType, publisher_id: int | str) -> NetworkMessage:
    return NetworkMessage(
        publisher_id=publisher_id,
        publisher_id_type=kind,
        writer_group_id=100,
        sequence_number=7,
        messages=(
            DataSetMessage(
                writer_id=62541,
                sequence_number=3,
                fields=(
                    Variant(BuiltIn.INT32, -5),
                    Variant(BuiltIn.BOOLEAN, True),
                    Variant(BuiltIn.DOUBLE, 1.5),
                    Variant(BuiltIn.BYTE_STRING, b"state"),
                    Variant(BuiltIn.STRING, "zustand"),
                ),
            ),
        ),
    )


def same_by_asyncua(publisher_id: Any) -> theirs.UadpNetworkMessage:
    return theirs.UadpNetworkMessage(
        Header=theirs.UadpHeader(PublisherId=publisher_id),
        GroupHeader=theirs.UadpGroupHeader(WriterGroupId=ua.UInt16(100), SequenceNo=ua.UInt16(7)),
        DataSetPayloadHeader=[ua.UInt16(62541)],
        Payload=[
            theirs.UadpDataSetVariant(
                Header=theirs.UadpDataSetMessageHeader(SequenceNo=ua.UInt16(3)),
                Data=[
                    ua.Variant(-5, ua.VariantType.Int32),
                    ua.Variant(True, ua.VariantType.Boolean),
                    ua.Variant(1.5, ua.VariantType.Double),
                    ua.Variant(b"state", ua.VariantType.ByteString),
                    ua.Variant("zustand", ua.VariantType.String),
                ],
            )
        ],
    )


PUBLISHERS = [
    (PublisherIdType.BYTE, 9, ua.Byte(9)),
    (PublisherIdType.UINT16, 2234, ua.UInt16(2234)),
    (PublisherIdType.UINT32, 70_000, ua.UInt32(70_000)),
    (PublisherIdType.STRING, "plc", ua.String("plc")),
]


class Receiver:
    """asyncua's interface for what arrives."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[theirs.UadpNetworkMessage] = asyncio.Queue()

    async def got_uadp(self, message: theirs.UadpNetworkMessage) -> None:
        await self.messages.put(message)


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.received: asyncio.Queue[bytes] = asyncio.Queue()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.received.put_nowait(data)


@pytest.mark.parametrize(("kind", "number", "their_id"), PUBLISHERS)
def test_asyncua_receives_ours_and_sends_what_we_read(kind: PublisherIdType, number: Any, their_id: Any) -> None:
    message = example(kind, number)

    async def both_directions() -> None:
        loop = asyncio.get_running_loop()
        ours, other = free_ports(2), 0
        other = ours + 1
        receiver = Receiver()
        cfg = UdpSettings(Addr=("127.0.0.1", ours), Adapter=("127.0.0.1", other))
        made, _, _ = cfg.create_socket()
        udp = OpcUdp(cfg, receiver, ua.Variant(their_id))
        them, _ = await loop.create_datagram_endpoint(lambda: udp, sock=made)
        us, mine = await loop.create_datagram_endpoint(Datagrams, local_addr=("127.0.0.1", ours))
        try:
            us.sendto(encoded(message), ("127.0.0.1", other))
            got: Any = await asyncio.wait_for(receiver.messages.get(), patience())
            assert got.Header.PublisherId == their_id
            (data_set,) = got.Payload
            assert [each.Value for each in data_set.Data] == [each.value for each in message.messages[0].fields]
            assert (got.GroupHeader.WriterGroupId, got.DataSetPayloadHeader, data_set.Header.SequenceNo) == (
                100, [62541], 3,
            )  # fmt: skip
            udp.send_uadp([same_by_asyncua(their_id)])
            assert decoded(await asyncio.wait_for(mine.received.get(), patience())) == message
        finally:
            them.close()
            us.close()
            await asyncio.sleep(0)

    asyncio.run(both_directions())


def test_asyncua_gives_a_publisher_id_of_uint64_a_type_that_is_reserved() -> None:
    """Type 6 in place of 3, which it reads as UInt16: ours is right by OPC 10000-14, Table 154."""
    octets = same_by_asyncua(ua.UInt64(2**40)).to_binary()
    assert octets[1] & 7 == 6
    with pytest.raises(UadpError, match="type 6 of a PublisherId is reserved"):
        decoded(octets)
    ours = encoded(example(PublisherIdType.UINT64, 2**40))
    assert ours[1] & 7 == 3
    assert struct.unpack_from("<Q", ours, 2) == (2**40,)
    assert theirs.UadpHeader.from_binary(Buffer(ours))[1].PublisherId != 2**40
