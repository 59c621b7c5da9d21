"""Messages of a flow that an application takes together."""

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, overload

from .errors import MalformedPayload
from .message import Message

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

    def __init__(self, flow: str, messages: list[Message]) -> None:
        self.flow = flow
        self._messages = messages

    def __repr__(self) -> str:
        return f"<twinlink.Batch of flow {self.flow!r}: {len(self)} messages>"

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, at: int) -> Message: ...

    @overload
    def __getitem__(self, at: slice) -> "Batch": ...

    def __getitem__(self, at: int | slice) -> "Message | Batch":
        found = self._messages[at]
        return Batch(self.flow, found) if isinstance(found, list) else found

    @property
    def payloads(self) -> list[bytes | memoryview]:
        """`Message.payload` of each."""
        return list(map(_of["payload"], self._messages))

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
        """The payloads as an array with a row for each: what `Sender.send_many` has sent of one.  Read-only, a copy.

        Raises MalformedPayload where they are not all as long, or that is no multiple of the size of ``dtype``.
        """
        import numpy as np  # loaded by programs that use it

        payloads, item = self.payloads, np.dtype(dtype).itemsize
        size = len(payloads[0]) if payloads else 0
        odd = next((one for one in self._messages if len(one.payload) != size), None)
        if odd is not None:
            raise MalformedPayload(
                f"the payloads are not all as long: {size} octets that of message {self._messages[0].sequence}, "
                f"{len(odd.payload)} that of message {odd.sequence}"
            )
        if size % item:
            raise MalformedPayload(f"payloads of {size} octets are no rows of {np.dtype(dtype)}, of {item} octets each")
        return np.frombuffer(b"".join(payloads), dtype).reshape(len(payloads), size // item)

    def _numbers(self, field: str, dtype: Any) -> "Array":
        import numpy as np  # loaded by programs that use it

        # A peer's header may say any 64 bits: as a time they may be below 0, but are no error.
        return np.fromiter(map(_of[field], self._messages), "uint64", len(self._messages)).astype(dtype)
