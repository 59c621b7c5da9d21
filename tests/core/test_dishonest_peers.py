"""Peers that acknowledge nothing, little or wrongly, beside honest ones: sessions on a simulated path and clock."""

from collections.abc import Callable
from random import Random

import pytest

from tests.core.pair import MS, Tamper, mute, pair
from twinlink.protocol.frames import HEADER, Kind, frame, refused_body
from twinlink.protocol.liveness import HELLO_INTERVAL_NS

SECONDS = 6

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


def honest_ages(
    monkeypatch: pytest.MonkeyPatch, seed: int, modes: list[str], octets: int, every_ms: int, loss: float = 0.0
) -> list[int]:
    """How old the messages are, in ns and ascending, that two honest peers get; all of them arrive, in order."""
    random = Random(seed)
    made = pair(monkeypatch, seed=seed)
    got = [end.receive("flow") for end in (made.far, made.add("honest"))]
    for number, mode in enumerate(modes):
        end = made.add(f"{mode} {number}")
        end.receive("flow")
        made.tampering[end.epoch] = MODES[mode](random)
    made.path.loss = loss
    sender, count = made.near.sender("flow"), SECONDS * 1000 // every_ms
    for number in range(count):
        assert sender._fits(octets)
        sender.send(number.to_bytes(8) + bytes(octets - 8))
        made.run(every_ms * MS)
    made.path.loss = 0.0
    made.run(1000 * MS)
    for messages in got:
        assert [message.sequence for message in messages] == list(range(count))
    return sorted(message.received_ns - message.sent_ns for messages in got for message in messages)


@pytest.mark.parametrize(("octets", "every_ms"), [(2000, 3), (100_000, 160)], ids=["2 KB", "in fragments"])
@pytest.mark.parametrize("mode", MODES)
def test_a_dishonest_peer_costs_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch, mode: str, octets: int, every_ms: int
) -> None:
    ages = honest_ages(monkeypatch, 1, [mode], octets, every_ms)
    assert ages[len(ages) * 99 // 100] < 50 * MS


@pytest.mark.parametrize("mode", MODES)
def test_at_full_rate_a_dishonest_peer_holds_up_the_others_once_until_its_hello_shows_it(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    ages = honest_ages(monkeypatch, 1, [mode], 2000, 1)
    assert ages[-1] <= HELLO_INTERVAL_NS
    assert ages[len(ages) * 95 // 100] < 50 * MS


@pytest.mark.parametrize("seed", range(8))
def test_a_random_crowd(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    random = Random(seed)
    modes = random.choices(list(MODES), k=random.randrange(1, 5))
    loss = random.choice([0.0, 0.0, 0.02])
    octets, every_ms = random.choice([(300, 1), (2000, 4), (20_000, 40)])
    ages = honest_ages(monkeypatch, seed, modes, octets, every_ms, loss)
    assert ages[len(ages) * 99 // 100] < 50 * MS
