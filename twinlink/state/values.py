"""What an application sees of a state: values, the columns of a key, and changes."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import MalformedPayload
from .record import DESIRED

REPORTED = "reported"

What = Literal["set", "removed", "expired"]


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a state, as it stood when it was asked for.

    Attributes:
        payload: its octets.
        version: of two values of a key and column the one with the higher version stands.
        set_by: name of the node that set it.
        session: epoch of the link with which it did so.
        set_at_ns: when, Unix time in ns on the clock of that node.
        answers: version of the desired value that a reported one answers; 0: none.
        remaining_s: how long it stands if it is not set again; None: it does not expire.
        acknowledged: names of the nodes that are up and have it, as far as this node knows.
    """

    payload: bytes
    version: int
    set_by: str
    session: int
    set_at_ns: int
    answers: int = 0
    remaining_s: float | None = None
    acknowledged: tuple[str, ...] = ()

    def text(self) -> str:
        """The payload as text; raises MalformedPayload where it is not UTF-8."""
        try:
            return self.payload.decode()
        except UnicodeDecodeError as error:
            raise MalformedPayload(f"a value of {len(self.payload)} octets that is not UTF-8: {error}") from error

    def json(self) -> Any:
        """What the payload says as JSON; raises MalformedPayload where it is none."""
        try:
            return json.loads(self.text())
        except (ValueError, RecursionError) as error:
            raise MalformedPayload(f"a value of {len(self.payload)} octets that is not JSON: {error}") from error


@dataclass(frozen=True, slots=True)
class Item(Mapping[str, Value]):
    """The values of one key, by column.

    Attributes:
        key: whose values these are.
        columns: those that stand.
    """

    key: str
    columns: dict[str, Value]

    @property
    def desired(self) -> Value | None:
        """What is wanted; None: nothing, or no more."""
        return self.columns.get(DESIRED)

    @property
    def reported(self) -> Value | None:
        """What is reported in the column of that name; None: nothing, or no more."""
        return self.columns.get(REPORTED)

    def __getitem__(self, column: str) -> Value:
        return self.columns[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


@dataclass(frozen=True, slots=True)
class Change:
    """A value has changed.

    Attributes:
        key, column: where.
        what: ``set``, ``removed`` (by its author) or ``expired`` (it was not set again in time).
        value: what stands now; None: nothing.
        version: of the value that was set or removed, or has expired.
        set_by: the node that did so; of what has expired, the one that had set it.
    """

    key: str
    column: str
    what: What
    value: Value | None
    version: int
    set_by: str
