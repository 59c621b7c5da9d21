"""What the view says of PRB blocks."""

import itertools

from twinlink_live.blocks import MAX_BLOCKS, PATIENCE_MS, STEP_MS, Blocks

from twinlink.control import E3Control, PrbBlock, PrbBlockResult, Status, unread_id
from twinlink.signed_payload import HEAD_OCTETS, MAGIC
from twinlink.state.record import HEAD, Record, Slot, Stamp
from twinlink.story import WAY, Story, encode

MS = 1_000_000
VALIDITY_MS = 1000
ASKED_NS = 1_000_000 * MS


def asked(identifier: str, *prbs: int, issued_ns: int = ASKED_NS) -> bytes:
    return PrbBlock(identifier, prbs, issued_ns, validity_ms=VALIDITY_MS, reason="interference").encode()


def result(identifier: str, status: Status, time_ns: int = ASKED_NS + 5 * MS, e3: E3Control | None = None) -> bytes:
    return PrbBlockResult(identifier, status, (), time_ns, "why", e3).encode()


def test_a_block_is_asked_installed_on_air_and_cleared() -> None:
    blocks = Blocks()
    blocks.asked(asked("a", 3, 4, 5, 9), "twin-1", 10)
    (one,) = blocks.described()
    assert (one["state"], one["by"], one["prbs"], one["ranges"]) == ("asked", "twin-1", "3-5,9", [[3, 5], [9, 9]])
    assert (one["steps"], one["reason"]) == ([10, None, None, None], "interference")
    blocks.observed(ASKED_NS + MS, 11)
    assert blocks.described()[0]["state"] == "asked"
    blocks.answered(result("a", "installed"), 12)
    blocks.observed(ASKED_NS + 4 * MS, 13)  # this was observed before it was installed
    assert blocks.described()[0]["state"] == "installed"
    blocks.observed(ASKED_NS + 15 * MS, 14)
    assert blocks.described()[0]["state"] == "on air"
    blocks.answered(result("a", "cleared", ASKED_NS + 99 * MS), 20)
    (one,) = blocks.described()
    assert (one["state"], one["steps"]) == ("cleared", [10, 12, 14, 20])
    times = [one[f"{name}_ns"] for name in ("asked", "installed", "on_air", "ended")]
    assert [int(time_ns) - ASKED_NS for time_ns in times] == [0, 5 * MS, 15 * MS, 99 * MS]


def test_a_renewal_changes_nothing_but_when_it_would_end() -> None:
    blocks = Blocks()
    blocks.asked(asked("a", 3), "twin-1", 1)
    blocks.answered(result("a", "installed"), 2)
    blocks.observed(ASKED_NS + 9 * MS, 3)
    before = blocks.described()
    blocks.asked(asked("a", 3, issued_ns=ASKED_NS + 500 * MS), "twin-1", 10)
    blocks.answered(result("a", "installed", ASKED_NS + 510 * MS), 11)
    assert blocks.described() == before


def test_what_is_not_answered_in_its_validity_is_said() -> None:
    blocks = Blocks()
    blocks.asked(asked("a", 3), "twin-1", 1)
    blocks.asked(asked("b", 3), "twin-1", 1)
    blocks.answered(result("b", "installed"), 2)
    last = 1 + (VALIDITY_MS + PATIENCE_MS) // STEP_MS
    blocks.look(last)
    assert [one["state"] for one in blocks.described()] == ["installed", "asked"]
    blocks.asked(asked("b", 3), "twin-1", 3)  # renewed
    blocks.look(last + 1)
    assert [one["state"] for one in blocks.described()] == ["installed", "no answer"]
    blocks.look(last + 3)
    assert [one["state"] for one in blocks.described()] == ["no answer", "no answer"]
    assert blocks.described()[0]["steps"][3] == last + 3


def test_when_a_block_came_on_air_before_anybody_looked_is_not_known() -> None:
    blocks = Blocks()
    blocks.asked(asked("a", 3), "twin-1", 1)
    blocks.answered(result("a", "installed"), 2)
    blocks.observed(ASKED_NS + 60 * MS, 9, 8)
    assert (blocks.described()[0]["state"], blocks.described()[0]["on_air_ns"]) == ("on air", None)


def test_a_rejection_and_the_time_of_the_ran() -> None:
    blocks = Blocks()
    blocks.asked(asked("a", 3), "twin-1", 1)
    blocks.answered(result("a", "rejected"), 2)
    blocks.asked(asked("b", 3), "twin-1", 3)
    e3 = E3Control(7, ASKED_NS, ASKED_NS, ran_ns=ASKED_NS + 3 * MS)
    blocks.answered(result("b", "installed", e3=e3), 4)
    newest, before = blocks.described()
    assert (before["state"], before["reason"]) == ("rejected", "why")
    assert (newest["state"], newest["ran_ns"]) == ("installed", str(ASKED_NS + 3 * MS))


def test_signed_ones_are_read_and_others_are_left_out() -> None:
    blocks = Blocks()
    blocks.asked(MAGIC.ljust(HEAD_OCTETS, b"\0") + asked("signed", 1), "twin-1", 1)
    for other in (b"", b"{}", b"\xff", asked("clears")):  # an empty list is no block
        blocks.asked(other, "twin-1", 1)
        blocks.answered(other, 1)
    blocks.answered(result("unknown", "installed"), 1)
    assert [one["id"] for one in blocks.described()] == ["signed"]


def test_a_decision_that_the_exporter_did_not_read_is_rejected() -> None:
    blocks = Blocks()
    blocks.asked(asked("a", 1), "twin-1", 1, unread_id(7, 40))
    blocks.answered(result(unread_id(7, 41), "rejected"), 2)
    assert blocks.described()[0]["state"] == "asked"
    blocks.answered(result(unread_id(7, 40), "rejected"), 3)
    assert (blocks.described()[0]["state"], blocks.described()[0]["reason"]) == ("rejected", "why")


def test_the_newest_are_kept() -> None:
    blocks = Blocks()
    for number in range(MAX_BLOCKS + 5):
        blocks.asked(asked(f"b{number}", 1), "twin-1", number)
    ids = [one["id"] for one in blocks.described()]
    assert ids == [f"b{number}" for number in itertools.islice(range(MAX_BLOCKS + 4, 0, -1), MAX_BLOCKS)]


def of_state(column: str, payload: bytes, key: str = "gnb-1") -> bytes:
    return HEAD + Record(Slot(key, column), Stamp(1, "twin-1", 7), 1, 0, None, payload).encode()


def test_stages_are_those_that_the_twin_tells_and_without_it_those_that_the_answers_tell() -> None:
    blocks = Blocks()
    blocks.asked(asked("a", 3), "twin-1", 1)
    blocks.answered(result("a", "installed"), 2)
    (one,) = blocks.described()
    assert [stage["name"] for stage in one["stages"] if stage["known"]] == ["installed"]
    assert [stage["name"] for stage in one["stages"]] == list(WAY)
    told = Story("a", (3,), "twin-1", "gnb-1", offset={"offset": MS, "bound": 7})
    told.note("seen", ASKED_NS - 4 * MS, "exporter")
    told.note("sent", ASKED_NS + MS, "twin")
    for payload in (b"", of_state("installed", encode([told])), of_state("story", b"[1]"), of_state("story", b"")):
        blocks.told(payload, 3)
        assert blocks.described() == [one]
    blocks.told(of_state("story", encode([Story("b", (3,)), told])), 3)
    stages = {stage["name"]: stage for stage in blocks.described()[0]["stages"]}
    assert (stages["seen"]["after_ns"], stages["seen"]["time_ns"]) == (0, str(ASKED_NS - 4 * MS))
    assert (stages["sent"]["after_ns"], stages["sent"]["error_ns"], stages["sent"]["clock"]) == (6 * MS, 7, "twin")
    assert not stages["installed"]["known"]
    blocks.told(of_state("story", encode([Story("a", (4,))])), 3)  # of another block with this id
    assert blocks.described()[0]["stages"] == list(stages.values())
