"""A story joins stages of two clocks, says so, and is read as it was written."""

import pytest

from twinlink.control import EXPIRED, REPLACED, E3Control, PrbBlockResult
from twinlink.errors import MalformedPayload
from twinlink.stats import ClockOffset
from twinlink.story import MAX_OCTETS, MAX_STORIES, NAMES, Story, decode, encode

SEEN_NS = 1_700_000_000_123_000_000
MS = 1_000_000


def story(offset: ClockOffset | None = None) -> Story:
    """Seen by an exporter whose clock is 500 ms ahead of the twin's, and sent 4 ms later."""
    made = Story("b-1", (40, 41), "twin-1", "gnb-1", offset=offset)
    made.note("seen", SEEN_NS, "exporter", "interference")
    made.note("signed", None, "twin", "no identity")
    made.note("sent", SEEN_NS + 4 * MS - 500 * MS, "twin")
    return made


def result(status: str, reason: str = "", e3: E3Control | None = None) -> PrbBlockResult:
    return PrbBlockResult("b-1", status, (), SEEN_NS + 9 * MS, reason, e3)  # type: ignore[arg-type]


def test_times_of_two_clocks_are_compared_with_their_offset_and_its_error() -> None:
    known = story({"offset": 500 * MS, "bound": MS // 5})
    assert known.since("sent") == (4 * MS, MS // 5)
    assert known.since("seen", "sent") == (-4 * MS, MS // 5)
    assert known.since("signed") is known.since("effect") is None
    assert story().since("sent") == (-496 * MS, None)
    assert "sent +4.0 ± 0.2 ms" in known.line()
    assert "± not known" in story().line()


def test_one_line_has_the_stages_in_order_and_names_those_that_are_not_known() -> None:
    one = story({"offset": 500 * MS, "bound": MS // 5})
    one.answered(result("installed", e3=E3Control(7, SEEN_NS + 5 * MS, SEEN_NS + 6 * MS, SEEN_NS + 7 * MS)))
    one.answered(result("cleared", EXPIRED))
    line = one.line()
    assert line.startswith("b-1, PRBs 40-41: seen ")
    assert line.endswith(
        ".123 (interference), tried not known, signed: no identity, sent +4.0 ± 0.2 ms, installed +6.0 ms, "
        f"on air +7.0 ms, effect not known, expired +9.0 ms ({EXPIRED})"
    )
    assert "\n" not in line


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (result("rejected", "sync: twin-1 is stale"), "rejected"),
        (result("cleared", EXPIRED), "expired"),
        (result("cleared", f"{REPLACED}b-2"), "replaced"),
        (result("cleared", "the E3 agent was lost"), "cleared"),
    ],
)
def test_the_first_end_counts_and_nothing_follows_it(answer: PrbBlockResult, end: str) -> None:
    one = story()
    assert one.answered(answer)
    assert next(reversed(one.stages)) == end
    assert not one.answered(result("installed"))
    assert not one.note("no answer", 1, "twin")
    assert ("on air" in one.line()) is (end != "rejected")  # what was rejected cannot have been on air


def test_what_the_model_refused_was_never_signed() -> None:
    one = Story("b-1", (40, 41))
    one.note("seen", SEEN_NS, "exporter")
    one.note("tried", SEEN_NS + 9 * MS, "twin", "refused: no-gain")
    one.note("refused", SEEN_NS + 9 * MS, "twin")
    assert one.ended
    assert [name for name, _ in one.known()] == ["seen", "tried", "refused"]


def test_it_is_read_as_it_was_written_and_the_newest_stay_within_the_limit() -> None:
    ones = [story({"offset": -3, "bound": 4}) for _ in range(MAX_STORIES + 3)]
    for k, one in enumerate(ones):
        one.id = f"b-{k}"
    assert decode(encode(ones)) == ones[-MAX_STORIES:]
    for one in ones:
        one.prbs = tuple(range(275))
        for name in NAMES[3:-1]:
            one.note(name, SEEN_NS, "twin", "\U0001f4e1" * 1000)
    assert len(encode(ones)) <= MAX_OCTETS
    assert decode(encode(ones))[-1].id == ones[-1].id


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        b"[1]",
        b"[" * 5000,
        b" " * (MAX_OCTETS + 1),
        encode([story()]).replace(b'"seen"', b'"guessed"'),
        encode([story()]).replace(b'"exporter",', b'"cell",'),
        encode([story()]).replace(str(SEEN_NS).encode(), b"1e300"),
        encode([story()]).replace(b"[40,41]", b"[40,999]"),
        encode([story()]).replace(b'"b-1"', b"7"),
        encode([story()]).replace(b'"clock_offset_ns":null', b'"clock_offset_ns":{"offset":"a","bound":0}'),
    ],
)
def test_what_is_no_story_is_refused(payload: bytes) -> None:
    with pytest.raises(MalformedPayload):
        decode(payload)
