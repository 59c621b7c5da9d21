"""Messages of a flow that an application takes together."""

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, overload

from .errors import MalformedPayload
from .message import Message
from .run import Run

if TYPE_CHECKING:
    import numpy as np

    from .npy import Array

_of = {name: itemgetter(place) for place, name in enumerate(Message._fields)}


class Batch(Sequence[Message]):
    """The messages of one `Receiver.receive_many`, in order: a sequence of `Message`; false where there is none.

    Beside that it has their fields one by one: ``payloads``, and arrays of numpy, which only a program that asks for
    one needs.

    Attributes:
        flow: name of the flow.
    """

    def __init__(self, flow: str, *parts: Sequence[Message]) -> None:
        """``parts``: lists, and runs; none is empty."""
        self.flow = flow
        self._parts = parts

    def __repr__(self) -> str:
        return f"<twinlink.Batch of flow {self.flow!r}: {len(self)} messages>"

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[Message]:
        return chain.from_iterable(self._parts)

    @overload
    def __getitem__(self, at: int) -> Message: ...

    @overload
    def __getitem__(self, at: slice) -> "Batch": ...

    def __getitem__(self, at: int | slice) -> "Message | Batch":
        found = self._parts[0][at] if len(self._parts) == 1 else list(self)[at]
        return found if isinstance(found, Message) else Batch(self.flow, found) if found else Batch(self.flow)

    @property
    def payloads(self) -> list[bytes | memoryview]:
        """`Message.payload` of each."""
        parts = [one.payloads() if isinstance(one, Run) else map(_of["payload"], one) for one in self._parts]
        return list(chain.from_iterable(parts))

    @property
    def sequence(self) -> "Array":
        """`Message.sequence` of each, as uint64."""
        return self._numbers("sequence", "uint64")

    @property
    def epoch(self) -> "Array":
        """`Message.epoch` of each, as uint64: the same for all, where one peer sends on the flow."""
        return self._numbers("epoch", "uint64")

    @property
    def sent_ns(self) -> "Array":
        """`Message.sent_ns` of each, as int64."""
        return self._numbers("sent_ns", "int64")

    @property
    def received_ns(self) -> "Array":
        """`Message.received_ns` of each, as int64."""
        return self._numbers("received_ns", "int64")

    def rows(self, dtype: "np.typing.DTypeLike" = "uint8") -> "Array":
        """The payloads as an array with a row for each: what `Sender.send_many` has sent of one.  Read-only.

        Raises MalformedPayload where they are not all as long, or that is no multiple of the size of ``dtype``.
        """
        import numpy as np  # loaded by programs that use it

        item = np.dtype(dtype).itemsize
        size = len(self[0].payload) if self._parts else 0
        for part in self._parts:
            ends = (part[0], part[-1]) if isinstance(part, Run) else part
            odd = next((one for one in ends if len(one.payload) != size), None)
            if odd is not None:
                raise MalformedPayload(
                    f"the payloads are not all as long: {size} octets that of message {self[0].sequence}, "
                    f"{len(odd.payload)} that of message {odd.sequence}"
                )
        if size % item:
            raise MalformedPayload(f"payloads of {size} octets are no rows of {np.dtype(dtype)}, of {item} octets each")
        octets = [one.octets if isinstance(one, Run) else b"".join(map(_of["payload"], one)) for one in self._parts]
        whole = memoryview(octets[0]).toreadonly() if len(octets) == 1 else b"".join(octets)
        return np.frombuffer(whole, dtype).reshape(len(self), size // item)

    def _numbers(self, field: str, dtype: Any) -> "Array":
        import numpy as np  # loaded by programs that use it

        numbers = np.empty(len(self), "uint64")
        at = 0
        for part in self._parts:
            if not isinstance(part, Run):
                numbers[at : at + len(part)] = np.fromiter(map(_of[field], part), "uint64", len(part))
            elif field == "sequence":
                numbers[at : at + len(part)] = np.arange(part.first, part.end, dtype="uint64")
            else:
                numbers[at : at + len(part)] = getattr(part, field)
            at += len(part)
        # A peer's header may say any 64 bits: as a time they may be below 0, but are no error.
        return numbers.astype(dtype)
