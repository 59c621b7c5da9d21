"""A process: a PLC that reads the words of one or two servers in its own cycle.

Arguments: ``protocol``, ``host``, ``servers`` (a list of ``port`` and ``reads``, words of each request), ``cycles_ms``:
what a cycle takes without communication; ``exchanges`` of each server; ``firmware``: the requests of an exchange follow
each other at once, and its end does not wait for a cycle, as in a PLC whose firmware has the protocol.  Otherwise the
application sends one request in a cycle, and takes the answer at the beginning of a later one.

A cycle of 0 ms stands for a client without cycles, which sends one request after the other.

It writes ``{"server": 0, "ms": ...}`` for each exchange, ``{"cycle": ...}`` with the time of each cycle, and
``{"done": true}``.
"""

import http.client
import queue
import time
from typing import Any, Protocol

from twinlink.process.guarded_thread import GuardedThread

from ..send_modes import precise_sleep
from .program import arguments, say

ANSWER_S = 10.0


class Requests(Protocol):
    """One connection to a server."""

    def __init__(self, host: str, port: int) -> None: ...

    def read(self, first: int, words: int) -> Any:
        """Some words from ``first`` on, as the protocol has them.  Raises OSError."""

    def convert(self, answer: Any) -> list[int]:
        """The words in what `read` returned, as integers."""


class HttpRequests:
    """`http.client`, one connection."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S)

    def read(self, first: int, words: int) -> bytes:
        """All words of the server."""
        self._connection.request("GET", "/words")
        return self._connection.getresponse().read()

    def convert(self, answer: bytes) -> list[int]:
        """Six characters each."""
        text = answer.decode()
        return [int(text[place : place + 6]) for place in range(0, len(text), 6)]


class ModbusRequests:
    """pymodbus, one connection."""

    def __init__(self, host: str, port: int) -> None:
        from pymodbus.client import ModbusTcpClient

        self._client = ModbusTcpClient(host, port=port, timeout=ANSWER_S, retries=0)
        self._client.connect()  # type: ignore[no-untyped-call]

    def read(self, first: int, words: int) -> list[int]:
        """Read Holding Registers."""
        answer = self._client.read_holding_registers(first, count=words, device_id=1)
        if answer.isError():
            raise OSError(f"the Modbus server answered with {answer}")
        return list(answer.registers)

    def convert(self, answer: list[int]) -> list[int]:
        """They are integers."""
        return answer


REQUESTS: dict[str, type[Requests]] = {"http": HttpRequests, "modbus": ModbusRequests}


class Server:
    """The exchanges with one server; its requests are on a thread."""

    def __init__(self, number: int, given: dict[str, Any]) -> None:
        self.number = number
        self.left = given["exchanges"]
        mine = given["servers"][number]
        places = [sum(mine["reads"][:place]) for place in range(len(mine["reads"]))]
        self._reads = list(zip(places, mine["reads"], strict=True))
        self._firmware = given["firmware"]
        self._requests = REQUESTS[given["protocol"]](given["host"], mine["port"])
        self._orders: queue.SimpleQueue[list[tuple[int, int]]] = queue.SimpleQueue()
        # Monotonic ns when the last answer was there, and what it was
        self._answers: queue.SimpleQueue[tuple[int, Any] | Exception] = queue.SimpleQueue()
        self._began = 0  # monotonic ns of the exchange that goes on; 0: none does
        self._next = 0  # request of this exchange
        GuardedThread(self._run, "words").start()

    def _run(self) -> None:
        try:
            while True:
                answer = None
                for first, words in self._orders.get():
                    answer = self._requests.read(first, words)
                    if self._firmware:
                        self._requests.convert(answer)
                self._answers.put((time.monotonic_ns(), answer))
        except Exception as error:  # reported by the cycle
            self._answers.put(error)

    def turn(self, wait: bool = False) -> None:
        """What a cycle does first: take an answer that is there, or with ``wait`` the next; send the next request."""
        if self._began:
            try:
                there = self._answers.get(wait, ANSWER_S)
            except queue.Empty:
                return
            if isinstance(there, Exception):
                raise there
            there_ns, answer = there
            if not self._firmware:
                self._requests.convert(answer)  # which takes time of the cycle
            self._next += 1
            if self._firmware or self._next == len(self._reads):
                end_ns = there_ns if self._firmware else time.monotonic_ns()
                say(server=self.number, ms=(end_ns - self._began) / 1e6)
                self._began, self._next, self.left = 0, 0, self.left - 1
        if not self.left:
            return
        if not self._began:
            self._began = time.monotonic_ns()
        self._orders.put(self._reads if self._firmware else [self._reads[self._next]])


def main() -> None:
    """Run cycles until every server has had its exchanges."""
    given = arguments()
    precise_sleep()
    servers = [Server(number, given) for number in range(len(given["servers"]))]
    cycle_s = given["cycles_ms"] / 1000
    cycles = 0
    while any(server.left for server in servers) or cycles < given.get("cycles", 0):
        began = time.monotonic()
        for server in servers:
            if server.left:
                server.turn(wait=not cycle_s)
        time.sleep(cycle_s)
        cycles += 1
        if "cycles" in given:
            say(cycle=(time.monotonic() - began) * 1000)
    say(done=True)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        say(error=f"{type(error).__name__}: {error}")
