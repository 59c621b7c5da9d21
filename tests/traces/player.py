"""Plays a trace: gives a node its inputs in time, and says which of the expectations it does not meet."""

from typing import Any, Protocol

from tests.traces.frames import Description, composed, zeros_or_hex

LAST_HELLO = "$hello"  # in what a node receives: the number of the last hello that it has transmitted


class TracedNode(Protocol):
    """What a trace needs of an implementation; `tests.traces.node.Node` is twinlink's."""

    transmitted: list[tuple[int, Description]]
    delivered: list[tuple[int, Description]]
    reported: list[tuple[int, Description]]

    def advance(self, to_ms: int) -> None: ...
    def receive(self, topic: str, frame: bytes, more: bool) -> None: ...
    def send(self, flow: str, payload: bytes, settings: dict[str, Any]) -> None: ...
    def subscribe(self, flow: str) -> None: ...
    def listen(self, flow: str) -> None: ...
    def take(self, flow: str) -> None: ...
    def backlog(self) -> None: ...


def matches(expected: Any, actual: Any) -> bool:
    """Whether all that is expected is there: of an object its members, of everything else the whole.

    Of what an ack ``acknowledges``, those that are named: messages may share one.
    """
    if isinstance(expected, dict) and isinstance(actual, dict):
        return all(
            key in actual and (set(value) <= set(actual[key]) if key == "acknowledges" else matches(value, actual[key]))
            for key, value in expected.items()
        )
    return bool(expected == actual)


def failures(trace: dict[str, Any], node: TracedNode) -> list[str]:
    """What the node did not do, or should not have done, in the order of the trace; empty where it keeps the rule."""
    steps = trace["steps"]
    for step in steps:
        node.advance(step["ms"])
        _give(step, node)
    node.advance(max(step["ms"] + step.get("within_ms", 0) for step in steps))
    matched: set[int] = set()
    return [problem for step in steps for problem in _check(step, node, matched)]


def _give(step: dict[str, Any], node: TracedNode) -> None:
    if "receive" in step:
        description = _with_hello_numbers(step["receive"], node)
        node.receive(description["topic"], composed(description), step.get("more", False))
    elif "send" in step:
        node.send(step["send"]["flow"], zeros_or_hex(step["send"]), step["send"])
    elif "subscribe" in step:
        node.subscribe(step["subscribe"])
    elif "listen" in step:
        node.listen(step["listen"])
    elif "take" in step:
        node.take(step["take"])
    elif "backlog" in step:
        node.backlog()


def _with_hello_numbers(description: Any, node: TracedNode) -> Any:
    if isinstance(description, dict):
        return {key: _with_hello_numbers(value, node) for key, value in description.items()}
    if description != LAST_HELLO:
        return description
    return max(int(frame["sequence"]) for _, frame in node.transmitted if frame["kind"] == "hello")


def _check(step: dict[str, Any], node: TracedNode, matched: set[int]) -> list[str]:
    begin_ms, end_ms = step["ms"], step["ms"] + step.get("within_ms", 0)
    problems = []
    if "transmits" in step:
        at = -1
        for expected in step["transmits"]:
            found = [
                index
                for index, (ms, frame) in enumerate(node.transmitted)
                if index > at and index not in matched and begin_ms <= ms <= end_ms and matches(expected, frame)
            ]
            if not found:
                during = [frame for ms, frame in node.transmitted if begin_ms <= ms <= end_ms]
                problems.append(f"{begin_ms} to {end_ms} ms: not transmitted: {expected}; but {during}")
                break
            at = found[0]
            matched.add(at)
    if "withholds" in step:
        problems += [
            f"{ms} ms: transmitted: {frame}"
            for index, (ms, frame) in enumerate(node.transmitted)
            if index not in matched and begin_ms <= ms <= end_ms and matches(step["withholds"], frame)
        ]
    for name, done in (("delivers", node.delivered), ("reports", node.reported)):
        if name in step:
            during = [one for ms, one in done if begin_ms <= ms <= end_ms and _concerns(one, step)]
            expected = step[name]
            if len(during) != len(expected) or not all(map(matches, expected, during)):
                problems.append(f"{begin_ms} to {end_ms} ms: {name} {during}, not {expected}")
    return problems


def _concerns(one: Description, step: dict[str, Any]) -> bool:
    """Reports are compared by the kinds that a trace names: an implementation may have others."""
    return "of" not in step or one.get("event") in step["of"]
