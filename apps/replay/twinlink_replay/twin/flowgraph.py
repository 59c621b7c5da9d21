"""The headless flowgraph: Twinlink Source -> Observer."""

import time
from collections.abc import Callable

import twinlink
from twinlink.process.guarded_thread import GuardedThread

from ..blocks.gnuradio_compat import gr
from ..blocks.observer import Observer, Record
from ..blocks.source import Source

DRAIN_S = 0.7  # time limit at the end for the analysis of messages that have arrived
WAIT_S = 0.002
STOP_S = 3.0  # and then for the call of ``on_records`` in progress: what it writes to is closed next


class Flowgraph:
    """Runs inside a ``with`` block.

    Args:
        link: an open link, which stays open.
        on_records: called with complete records, on the flowgraph's thread.
        buffer_octets: as of `Source`.
        waits: whether what arrives waits for room in the queue, as of a replay, of which nothing is to be dropped.
            Its sender then waits, too.
    """

    def __init__(
        self,
        link: twinlink.Link,
        on_records: Callable[[list[Record]], None],
        buffer_octets: int,
        waits: Callable[[], bool] = lambda: False,
    ) -> None:
        self._buffer_octets, self._waits, self._ending = buffer_octets, waits, False
        self.source = Source(link=link, buffer_octets=buffer_octets, on_message=self._wait_for_room)
        self.observer = Observer(on_records)
        self._top = gr.top_block("twinlink-replay")
        self._top.connect(self.source, self.observer)

    def __enter__(self) -> "Flowgraph":
        self._top.start()
        return self

    def _wait_for_room(self, message: twinlink.Message) -> None:
        while self._waits() and not self._ending:
            if self.source.stats()["waiting"] * len(message.payload) < self._buffer_octets // 2:
                return
            time.sleep(WAIT_S)

    def __exit__(self, *_: object) -> None:
        self._ending = True
        self.source.end()
        drained = GuardedThread(self._top.wait, "flowgraph-drain")
        drained.start()
        drained.join(DRAIN_S)
        self._top.stop()
        drained.join(STOP_S)
