"""The headless flowgraph: Twinlink Source -> Observer."""

from collections.abc import Callable

import twinlink
from twinlink.process.guarded_thread import GuardedThread

from ..blocks.gnuradio_compat import gr
from ..blocks.observer import Observer, Record
from ..blocks.source import Source

DRAIN_S = 0.7  # time limit at the end for the analysis of messages that have arrived
STOP_S = 3.0  # and then for the call of ``on_records`` in progress: what it writes to is closed next


class Flowgraph:
    """Runs inside a ``with`` block.

    Args:
        link: an open link, which stays open.
        on_records: called with complete records, on the flowgraph's thread.
        buffer_octets: as of `Source`.
    """

    def __init__(
        self,
        link: twinlink.Link,
        on_records: Callable[[list[Record]], None],
        buffer_octets: int,
    ) -> None:
        self.source = Source(link=link, buffer_octets=buffer_octets)
        self.observer = Observer(on_records)
        self._top = gr.top_block("twinlink-replay")
        self._top.connect(self.source, self.observer)

    def __enter__(self) -> "Flowgraph":
        self._top.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.source.end()
        drained = GuardedThread(self._top.wait, "flowgraph-drain")
        drained.start()
        drained.join(DRAIN_S)
        self._top.stop()
        drained.join(STOP_S)
