"""The golden traces hold for the C node, but those that are named here, each with the reason."""

import ctypes as ct
import json

import pytest

from tests.c.building import needs_compiler
from tests.c.traced import CNode
from tests.traces.make import TRACES
from tests.traces.player import failures

pytestmark = needs_compiler

AT_ONCE = "its application gets each message at once, by a call: nothing waits to be consumed"
NO_DETECT = "it repairs all that it sends, and rejects what its peer does not repair"
NO_RUNS = "it neither sends runs nor says that it reads them, so a frame of this kind is an unknown one"
NOT_IMPLEMENTED = {
    "batched-acks-before-nak": "it acknowledges each message at once, so those acks are two frames",
    "consumed-does-not-exceed": AT_ONCE,
    "consumed-does-not-go-back": NO_DETECT,
    "consumed-does-not-pass-the-ack": AT_ONCE,
    "credit-after-131072": AT_ONCE,
    "credit-counts-messages": AT_ONCE,
    "detect-begins-where-since-says": NO_DETECT,
    "detect-reports-gaps": NO_DETECT,
    **dict.fromkeys(
        (
            "drops-run",
            "drops-run-beyond-the-last-number",
            "drops-run-of-nothing",
            "drops-run-of-too-many",
            "reads-run",
            "run-behind-a-gap",
            "run-of-a-batch",
            "says-that-it-reads-runs",
        ),
        NO_RUNS,
    ),
    "goes-on-without-one-that-withholds": "a MAY: it waits for every peer that is up",
    "nothing-follows-a-successor": "it takes no message before a hello of its session: that is retransmitted",
    "refuses-before-a-hello": "its window is 64 messages and its slots, not octets",
    "refuses-beyond-its-window": "its window is 64 messages and its slots, not octets",
    "says-which-flows-it-does-not-repair": NO_DETECT,
    "sends-long-in-fragments": "it sends no fragments: what is longer than a peer takes is announced as lost, to all",
    "start-by-flows": "it receives one flow, and the trace two",
    "too-many-ranges": "what is beyond its window of 64 messages is refused, and not named as missing",
    "unclaimed-is-rejected": "it takes its flow from the beginning: on others it rejects each message",
}
NAMES = sorted(path.stem for path in TRACES.glob("*.json"))


def found(library: ct.CDLL, name: str) -> list[str]:
    trace = json.loads((TRACES / f"{name}.json").read_text())
    return failures(trace, CNode(library, trace))


@pytest.mark.parametrize("name", [one for one in NAMES if one not in NOT_IMPLEMENTED])
def test_the_node_keeps_the_rule(library: ct.CDLL, name: str) -> None:
    assert found(library, name) == []


@pytest.mark.parametrize("name", sorted(NOT_IMPLEMENTED))
def test_the_list_names_only_what_does_not_hold(library: ct.CDLL, name: str) -> None:
    assert found(library, name) != []


def test_the_list_names_traces() -> None:
    assert NOT_IMPLEMENTED.keys() - set(NAMES) == set()
