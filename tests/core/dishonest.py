"""What a dishonest peer sends in place of the frames of its session."""

from collections.abc import Callable
from random import Random

from tests.core.pair import Tamper, mute
from twinlink.protocol.frames import HEADER, Kind, frame, refused_body

silent = mute(b"ack/")  # it says hello, and nothing else


def stops_after(count: int) -> Tamper:
    """It acknowledges until it has sent so many frames, and then nothing."""
    left = [count]

    def tamper(topic: bytes, sent: bytes) -> list[bytes]:
        left[0] -= topic.startswith(b"ack/")
        return silent(topic, sent) if left[0] < 0 else [sent]

    return tamper


def one_in(count: int) -> Tamper:
    """It sends one in so many of its acks."""
    number = [0]

    def tamper(topic: bytes, sent: bytes) -> list[bytes]:
        number[0] += topic.startswith(b"ack/")
        return [sent] if number[0] % count == 0 else silent(topic, sent)

    return tamper


def only_naks(topic: bytes, sent: bytes) -> list[bytes]:
    """It acknowledges by naks alone."""
    return [sent] if sent[3] == Kind.NAK else silent(topic, sent)


def nothing_consumed(topic: bytes, sent: bytes) -> list[bytes]:
    """It says that its application has consumed nothing."""
    if sent[3] in {Kind.ACK, Kind.ACK_RANGE} and topic.startswith(b"ack/"):
        return [sent[:40] + bytes(8) + sent[48:]]
    return [sent]


def refuses_all() -> Tamper:
    """It refuses all that has been sent and will be, once, and says nothing more."""
    done: list[bool] = []

    def tamper(topic: bytes, sent: bytes) -> list[bytes]:
        if not topic.startswith(b"ack/") or done or sent[3] not in {Kind.ACK, Kind.ACK_RANGE}:
            return silent(topic, sent)
        done.append(True)
        _, _, epoch, sequence, sent_ns = HEADER.unpack_from(sent)
        acked_epoch = int.from_bytes(sent[32:40])
        return [frame(Kind.REFUSED, epoch, sequence, sent_ns, refused_body(acked_epoch, 2**40))]

    return tamper


def comes_and_goes(ms: int) -> Tamper:
    """It acknowledges nothing in every second period of so many of its frames."""
    number = [0]

    def tamper(topic: bytes, sent: bytes) -> list[bytes]:
        number[0] += 1
        return silent(topic, sent) if number[0] // ms % 2 else [sent]

    return tamper


def only_consumes(topic: bytes, sent: bytes) -> list[bytes]:
    """It acknowledges nothing, but says that all has been consumed."""
    if sent[3] == Kind.ACK and topic.startswith(b"ack/"):
        _, _, epoch, sequence, sent_ns = HEADER.unpack_from(sent)
        return [frame(Kind.ACK, epoch, sequence, sent_ns, sent[32:48])]
    return silent(topic, sent)


MODES: dict[str, Callable[[Random], Tamper]] = {
    "mute": lambda random: silent,
    "stops": lambda random: stops_after(random.randrange(400)),
    "trickle": lambda random: one_in(random.randrange(2, 60)),
    "naks": lambda random: only_naks,
    "consumes nothing": lambda random: nothing_consumed,
    "refuses": lambda random: refuses_all(),
    "comes and goes": lambda random: comes_and_goes(random.randrange(5, 300)),
    "only consumes": lambda random: only_consumes,
}
