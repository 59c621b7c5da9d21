"""What a view shows of a link that it joins as an observer does, or of the link that a mirror shows."""

from typing import Any

import twinlink
from twinlink.cli.observer import Observer
from twinlink.mirror import MIRROR_FLOW
from twinlink.protocol.wire import RECEIVED, SENT

from .newest import Newest

MAX_NAMES = 4096


class SeenLink:
    """A `Source` of what a link's peers send, or, at a mirror, of what the observed node sends and receives."""

    def __init__(self, link: twinlink.Link) -> None:
        self.newest = Newest()
        self.node = link.node
        self._link = link
        self._names: dict[int, str] = {}
        self._observer: Observer | None = None  # calls from its first line on
        self._observer = Observer(link, self._on_message, self.newest.events.append)

    def close(self) -> None:
        """See `Source`: the link of an observer ends with the view."""

    def names(self) -> dict[int, str]:
        """See `Source`."""
        return dict(self._names)

    def read(self) -> dict[str, Any]:
        """See `Source`."""
        assert self._observer is not None
        sample, observation = self._observer.sample(), self._observer.observation
        if observation is not None:
            self.node = observation.node or self.node
        rows = [self._row(row, observation is not None) for row in sample["flows"] if row["flow"] != MIRROR_FLOW]
        named = [one for one in sample["peers"] if observation is None or one["node"] != observation.node]
        return {
            "node": self.node,
            "transport": sample["transport"],
            "endpoint": self._link.endpoint,
            "listening": self._link.listening,
            "unseen": sample["unseen"],
            "flows": sorted(rows, key=lambda row: (row["direction"], row["flow"], row["nodes"])),
            "peers": named,
        }

    def _row(self, row: dict[str, Any], is_mirrored: bool) -> dict[str, Any]:
        sync = None if is_mirrored else self._link.sync(row["flow"]).stats()
        direction = SENT if is_mirrored and row["node"] == self.node else RECEIVED
        return row | {"direction": direction, "nodes": [row["node"]], "sync": sync, "repaired": None}

    # On the thread that receives

    def _on_message(self, message: twinlink.Message) -> None:
        if message.node is not None and (message.epoch in self._names or len(self._names) < MAX_NAMES):
            self._names[message.epoch] = message.node
        observation = self._observer.observation if self._observer is not None else None
        is_own = observation is not None and message.epoch == observation.epoch
        self.newest.on_message(SENT if is_own else RECEIVED, message)
