"""`twinlink state`: shows, watches and sets, over a link and as a process."""

import contextlib

import pytest

import twinlink
from tests.cli.running import Start
from twinlink.cli import main
from twinlink.testing import free_endpoint, patience, wait_until


def test_shows_sets_and_removes(start: Start) -> None:
    at = free_endpoint()
    with twinlink.open("zeromq", listen=at, node="twin-1") as link:
        state = link.state("prb-block")
        version = state.desire("cell-1", {"prbs": [40, 41]}, expires_s=1000)
        state.report("cell-1", b"\x00\x01", answers=version)
        state.report("cell-9", {"text": 500 * "x"})
        shown = start("state", "show", "prb-block", "--connect", at)
        assert shown.code() == 0
        assert shown.out[0].split() == ["key", "column", "set", "by", "age", "s", "ends", "in", "s", "answers", "value"]
        assert [line.split()[0:3] for line in shown.out[1:]] == [
            ["cell-1", "desired", "twin-1"],
            ["cell-1", "reported", "twin-1"],
            ["cell-9", "reported", "twin-1"],
        ]
        assert shown.out[3].endswith("xxx... (511 characters; --json has all)")
        assert shown.out[1].endswith('- {"prbs":[40,41]}')
        assert shown.out[2].endswith("it 2 octets: 00 01")

        setting = start("state", "set", "prb-block", "cell-2", "hello", "--connect", at, "--json")
        assert setting.code() == 0
        record = setting.records()[-1]
        assert record["acknowledged"] == ["twin-1"]
        found = state["cell-2"].desired
        assert found is not None
        assert (found.payload, found.version) == (b"hello", record["version"])

        removing = start("state", "remove", "prb-block", "cell-1", "--column", "reported", "--connect", at)
        assert removing.code() == 0
        assert state["cell-1"].reported is None
        assert state["cell-1"].desired is not None


def test_the_removal_of_a_value_that_is_not_there_says_so(start: Start) -> None:
    at = free_endpoint()
    with twinlink.open("zeromq", listen=at, node="twin-1") as link:
        state = link.state("prb-block")
        state.desire("cell-1", "here")
        removing = start("state", "remove", "prb-block", "cell-l", "--connect", at)
        assert removing.code() == 0
        assert "cell-l has no value desired to remove: `twinlink state show prb-block` lists them" in removing.err
        removing = start("state", "remove", "prb-block", "cell-1", "--connect", at)
        assert removing.code() == 0
        assert "to remove" not in removing.err


def test_a_mirror_has_no_states(start: Start) -> None:
    with (
        twinlink.open("zeromq", listen=free_endpoint(), node="twin-1") as link,
        link.mirror(free_endpoint()) as mirror,
    ):
        link.state("mode").desire("cell-1", "here")
        runs = [
            start("state", *words, "--connect", mirror.endpoint)
            for words in (["show", "mode"], ["set", "mode", "a", "b"])
        ]
        for run in runs:
            assert run.code() == 1
            assert "a mirror is there, which shows flows and has no states" in run.err
            assert not run.out


def test_watches_and_holds_a_value_until_it_is_interrupted(start: Start) -> None:
    at = free_endpoint()
    with twinlink.open("zeromq", listen=at, node="twin-1") as link:
        state = link.state("mode")
        state.desire("cell-1", "before")
        watching = start("state", "watch", "mode", "--connect", at)
        watching.wait_for("stands cell-1 desired, by twin-1: before", "out")
        holding = start("state", "set", "mode", "cell-1", "held", "--expires", "1", "--hold", "--connect", at)
        watching.wait_for(": held", "out")
        versions = set[int]()

        def renewed() -> int:
            item = state.get("cell-1")
            if item is not None and item.desired is not None:
                versions.add(item.desired.version)
            return len(versions) > 6  # more than three times the time in which it would end

        wait_until(renewed)
        holding.interrupt()
        assert holding.code() == 0
        wait_until(lambda: watching.out[-1].startswith("expired cell-1 desired") and state.get("cell-1") is None)
        watching.interrupt()
        assert watching.code() == 0
        # Renewals are not shown; of a process that stood still for a second, the value ends and is set again.
        shown = [line.split()[0] for line in watching.out]
        assert shown == ["stands", *["set", "expired"] * (len(shown) // 2)]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["show"], "NAME"),
        (["look", "mode"], "'look' is none of show, watch, set, remove"),
        (["set", "mode", "cell-1"], "set takes a key and a value, as in `twinlink state set mode cell-1 VALUE`"),
        (["remove", "mode"], "remove takes a key"),
        (["set", "mode", "cell-1", "x", "--hold"], "say when with --expires S"),
        (["set", "mode", "cell-1", "x", "--column", "a b"], "column 'a b': a name has 1 to 63"),
        (["set", "mode", "k" * 129, "x"], "a key has 1 to 128 octets"),
        (["remove", "mode", "cell-1", "--hold", "--expires", "1"], "--expires and --hold are for set, not for remove"),
        (["show", "mode", "--expires", "1"], "--expires and --hold are for set, not for show"),
        (["show", ""], "state '': a name has 1 to 57"),
        (["show", "a mode"], "state 'a mode': a name has 1 to 57"),
    ],
)
def test_what_is_wrong_is_said(words: list[str], says: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) if says.startswith(("argument", "the following")) else contextlib.nullcontext():
        assert main(["state", *words, "--listen", free_endpoint(), "--timeout", "0.1"]) != 0
    assert says in capfd.readouterr().err


def test_says_what_is_missing(start: Start) -> None:
    at = free_endpoint()
    alone = start("state", "show", "mode", "--connect", at, "--timeout", "0.2")
    assert alone.code() == 1
    with twinlink.open("zeromq", listen=at, node="twin-1"):
        nothing = start("state", "show", "mode", "--connect", at, "--timeout", str(patience()))
        assert nothing.code() == 1
        assert nothing.out == ["no value: twin-1 is up; does a program there call link.state('mode')?"]


def test_shows_a_state_that_changes_all_the_time(start: Start) -> None:
    at = free_endpoint()
    with twinlink.open("zeromq", listen=at, node="twin-1") as link:
        state = link.state("mode")
        shown = start("state", "show", "mode", "--connect", at)

        def ended_while_it_is_renewed() -> bool:
            state.desire("cell-1", "on", expires_s=1000)
            return shown.process.poll() is not None

        wait_until(ended_while_it_is_renewed)
        assert shown.code() == 0
        assert shown.out[1].endswith("on")
