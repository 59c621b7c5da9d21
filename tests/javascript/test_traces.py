"""The golden traces of receiving hold for the JavaScript node, but those that are named here, with the reason."""

import json

import pytest

from tests.javascript.running import needs_node
from tests.javascript.traced import Bridge, JavaScriptNode
from tests.traces.make import TRACES
from tests.traces.player import failures

pytestmark = needs_node

SENDS_NOTHING = "it sends no messages"
NOT_IMPLEMENTED = {
    "nothing-follows-a-successor": "it takes no message before a hello of its session: that is retransmitted",
    "unclaimed-is-rejected": "it holds nothing of a flow that it has not subscribed to: it rejects each message",
    **dict.fromkeys(
        (
            "acks-for-another",
            "an-ack-is-news",
            "except-what-was-rejected",
            "fragment-progress-is-news",
            "goes-on-without-one-that-withholds",
            "nak-acknowledges-below-known",
            "names-what-is-evicted",
            "no-bundle-where-a-peer-does-not-repair",
            "no-run-where-a-peer-does-not-read-it",
            "numbers-from-zero",
            "probes-for-an-ack",
            "probes-when-hellos-were-lost",
            "probes-when-its-own-hellos-were-lost",
            "rejected-but-kept-for-another",
            "requested-lowest-is-not-held-back",
            "resumption-repairs",
            "retransmits-what-is-named",
            "run-of-a-batch",
            "says-what-it-owes",
            "says-what-it-owes-again",
            "says-where-its-flows-stand",
            "says-which-flows-it-does-not-repair",
            "sends-long-in-fragments",
            "suspension-ends",
            "waits-for-a-silent-reader",
            "whole-where-a-peer-does-not-repair",
            "window-holds-back",
        ),
        SENDS_NOTHING,
    ),
}
NAMES = sorted(path.stem for path in TRACES.glob("*.json"))


def found(bridge: Bridge, name: str) -> list[str]:
    trace = json.loads((TRACES / f"{name}.json").read_text())
    return failures(trace, JavaScriptNode(bridge, trace["settings"]))


@pytest.mark.parametrize("name", [one for one in NAMES if one not in NOT_IMPLEMENTED])
def test_the_node_keeps_the_rule(bridge: Bridge, name: str) -> None:
    assert found(bridge, name) == []


@pytest.mark.parametrize("name", sorted(NOT_IMPLEMENTED))
def test_the_list_names_only_what_does_not_hold(bridge: Bridge, name: str) -> None:
    assert found(bridge, name) != []


def test_the_list_names_traces() -> None:
    assert NOT_IMPLEMENTED.keys() - set(NAMES) == set()
