"""A peer of the page in place of a browser."""

from types import TracebackType
from typing import Any, Self

import twinlink


class PagePeer:
    """Attributes: ``state``, the newest."""

    def __init__(self, page: str) -> None:
        self.state: dict[str, Any] = {}
        self.link = twinlink.open("websocket", connect=page, node="browser")
        self.link.receiver("live-state", handler=self._take)

    def _take(self, message: twinlink.Message) -> None:
        self.state = message.json()

    def flow(self, direction: str, name: str) -> dict[str, Any]:
        rows = [one for one in self.state.get("flows", ()) if (one["direction"], one["flow"]) == (direction, name)]
        return rows[0] if rows else {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.link.close()
