"""The peer's clock against ours, from the timestamps of acks."""

from twinlink.message import Ack
from twinlink.protocol.rtt import clock_offset


def ack(sent_ns: int, peer_received_ns: int, peer_sent_ns: int, received_ns: int) -> Ack:
    return Ack(0, 100, sent_ns, peer_received_ns, peer_sent_ns, received_ns, 7, "flow")


def test_the_quickest_exchange_tells_the_offset_to_half_its_round_trip() -> None:
    assert clock_offset([ack(0, 1100, 1200, 1000), ack(2000, 3050, 3060, 2110)]) == (1000, 50)
    assert clock_offset([]) is None


def test_an_exchange_during_which_a_clock_was_set_tells_nothing() -> None:
    set_back = ack(1_000_000, 1_000_050, 1_000_060, 400_110)
    assert clock_offset([set_back, ack(400_200, 400_250, 400_260, 400_310)]) == (0, 50)
    assert clock_offset([set_back]) == (300_000, 299_950)
