"""A process: N clients of a broker or server, one of which asks and waits for the answers of all others.

Arguments: ``system`` (``mqtt`` or ``opcua``), ``qos``, ``host``, ``port``, ``clients`` (N), ``rounds``, ``octets`` of
each message, ``publishing_ms``.  It writes ``{"connected_s": ...}``, for each round ``{"ms": ..., "answers": ...}``,
and ``{"done": true}``.
"""

import asyncio
import contextlib
import logging
import struct
import time
from abc import ABC, abstractmethod
from typing import Any

from .program import arguments, say

ROUND_S = 60.0  # how long to wait for all answers
CONNECTING = 20  # at the same time
QUESTION, ANSWER = "B", "A"
_HEAD = struct.Struct("!II")  # round, client


class Group(ABC):
    """The clients; a system fills `open` and `ask`, and calls `answered`."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.number = 0  # of the round
        self._seen: set[int] = set()
        self._all = asyncio.Event()

    @abstractmethod
    async def open(self) -> None:
        """Connect all."""

    @abstractmethod
    async def ask(self, message: bytes) -> None:
        """Let the first client publish the question."""

    def message(self, client: int) -> bytes:
        """A question or an answer of this round."""
        return _HEAD.pack(self.number, client).ljust(self.given["octets"], b"\0")

    def is_current(self, message: bytes) -> bool:
        """Whether a message is of this round."""
        return len(message) >= _HEAD.size and bool(_HEAD.unpack_from(message)[0] == self.number)

    def answered(self, message: bytes) -> None:
        """The first client has an answer."""
        if self.is_current(message):
            self._seen.add(_HEAD.unpack_from(message)[1])
            if len(self._seen) == self.given["clients"] - 1:
                self._all.set()

    async def round(self) -> tuple[float, int]:
        """One question; the time in ms until all answers are there, and their number."""
        self.number += 1
        self._seen.clear()
        self._all.clear()
        began = time.monotonic_ns()
        await self.ask(self.message(0))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._all.wait(), ROUND_S)
        return (time.monotonic_ns() - began) / 1e6, len(self._seen)


class MqttGroup(Group):
    """All clients on connections of `mqtt_client`."""

    async def open(self) -> None:
        """Connect all."""
        from .mqtt_client import Client

        given, qos = self.given, self.given["qos"]
        self._first = Client("c0", self.answered)
        await self._first.open(given["host"], given["port"], ANSWER, qos)

        def other(number: int) -> Client:
            def on_question(_message: bytes) -> None:
                made.publish(ANSWER, self.message(number), qos)

            made = Client(f"c{number}", on_question)
            return made

        others = [other(number) for number in range(1, given["clients"])]
        for first in range(0, len(others), CONNECTING):
            some = others[first : first + CONNECTING]
            await asyncio.gather(*(each.open(given["host"], given["port"], QUESTION, qos) for each in some))

    async def ask(self, message: bytes) -> None:
        """Publish the question."""
        self._first.publish(QUESTION, message, self.given["qos"])


class OpcuaGroup(Group):
    """All clients are asyncua's."""

    async def open(self) -> None:
        """Connect all."""
        self._first, self._question = await self._client(0)
        others = range(1, self.given["clients"])
        for first in range(0, len(others), CONNECTING):
            await asyncio.gather(*map(self._client, others[first : first + CONNECTING]))

    async def _client(self, number: int) -> Any:
        from asyncua import ua
        from asyncua.client.client import Client

        given = self.given
        client = Client(f"opc.tcp://{given['host']}:{given['port']}/", timeout=ROUND_S, watchdog_intervall=3600)
        client.session_timeout = 3_600_000
        await client.connect()
        nodes = {name: client.get_node(ua.NodeId.from_string(f"ns=1;s={name}")) for name in (QUESTION, ANSWER)}
        group = self

        class Handler:
            def datachange_notification(self, _node: Any, value: bytes, _data: Any) -> None:
                if not group.is_current(value or b""):
                    return
                if number == 0:
                    group.answered(value)
                else:
                    answer = nodes[ANSWER].write_value(_value(group.message(number)))
                    tasks.add(task := asyncio.ensure_future(answer))
                    task.add_done_callback(tasks.discard)

        tasks: set[asyncio.Future[None]] = set()
        subscription = await client.create_subscription(given["publishing_ms"], Handler())
        subscription.is_stale = lambda margin: False  # type: ignore[method-assign]
        watched = nodes[ANSWER if number == 0 else QUESTION]
        await subscription.subscribe_data_change(watched, queuesize=10_000)
        return client, nodes[QUESTION]

    async def ask(self, message: bytes) -> None:
        """Write the question."""
        await self._question.write_value(_value(message))


def _value(message: bytes) -> Any:
    """A value without a timestamp: open62541's server refuses one."""
    from asyncua import ua

    return ua.DataValue(ua.Variant(message, ua.VariantType.ByteString))


async def main() -> None:
    """Connect, ask, and report."""
    given = arguments()
    logging.getLogger("asyncua").setLevel(logging.CRITICAL)
    began = time.monotonic()
    group: Group = MqttGroup(given) if given["system"] == "mqtt" else OpcuaGroup(given)
    await group.open()
    say(connected_s=time.monotonic() - began)
    await group.round()  # not counted
    for _ in range(given["rounds"]):
        ms, answers = await group.round()
        say(ms=ms, answers=answers)
    say(done=True)


if __name__ == "__main__":
    asyncio.run(main())
