"""Payloads: anything with the buffer protocol, such as bytes, bytearray, memoryview and C-contiguous ndarray."""

import re
from typing import TYPE_CHECKING, Any, Protocol, cast

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from typing_extensions import Buffer  # in collections.abc from Python 3.12


class Array(Protocol):
    """A numpy array, which type checkers take for a buffer from Python 3.12 on."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Where its memory is."""


if TYPE_CHECKING:
    Payload = Buffer | Array
else:
    Payload = Any

_FIELD_NAME = re.compile(":[^:]*:")  # in the format of a structured array


def payload_view(payload: Payload) -> memoryview:
    """The payload's own memory, not a copy.  Raises TypeError, ConfigurationError."""
    try:
        view = memoryview(cast(Any, payload))
    except (TypeError, ValueError) as error:
        raise TypeError(f"the payload must be bytes-like, not {type(payload).__name__}: {error}") from None
    if "O" in view.format and "O" in _FIELD_NAME.sub("", view.format):
        raise TypeError("the payload is an array of Python objects; their octets mean nothing to a peer")
    if not view.c_contiguous:
        raise ConfigurationError("the payload is not C-contiguous; send numpy.ascontiguousarray(payload)")
    return view.cast("B") if view.nbytes else memoryview(b"")
