"""Payloads: anything with the buffer protocol, such as bytes, memoryview and C-contiguous ndarray; text; JSON."""

import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from ..errors import ConfigurationError
from ..text_payload import encode_json, encode_text

if TYPE_CHECKING:
    from typing_extensions import Buffer  # in collections.abc from Python 3.12


class Array(Protocol):
    """A numpy array, which type checkers take for a buffer from Python 3.12 on."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Where its memory is."""


if TYPE_CHECKING:
    Payload = Buffer | Array | str | dict[str, Any] | list[Any]
else:
    Payload = Any

COPIED_OCTETS = 1024  # of a row: up to here a copy takes less time than a view, and little more memory
_FIELD_NAME = re.compile(":[^:]*:")  # in the format of a structured array


def octets_of(payload: Payload) -> bytes | memoryview:
    """What is sent: the memory of what is bytes-like, not a copy; text as UTF-8, a dict or list as JSON.

    Raises TypeError, ConfigurationError.
    """
    try:
        view = memoryview(cast(Any, payload))
    except (TypeError, ValueError) as error:  # octets come first: they have the highest rates
        if isinstance(payload, str):
            return encode_text(payload)
        if isinstance(payload, dict | list):
            return encode_json(payload)
        raise TypeError(
            f"a payload cannot be of type {type(payload).__name__}: {_right_call(payload, error)}"
        ) from error
    format_ = view.format
    if "w" in format_ and isinstance(payload, str):  # numpy's str is bytes-like, in UTF-32
        return encode_text(payload)
    if "O" in format_ and "O" in _FIELD_NAME.sub("", format_):
        raise TypeError(
            "the payload is an array of Python objects, whose octets mean nothing to a peer: "
            "give it a numeric dtype with astype(), or send(payload.tolist()) as JSON"
        )
    if not view.c_contiguous:
        raise ConfigurationError(
            "the payload is not C-contiguous: send_array(payload) sends an array with dtype and shape, "
            "send(numpy.ascontiguousarray(payload)) its octets"
        )
    return view.cast("B") if view.nbytes else memoryview(b"")


def octets_of_each(payloads: "Iterable[Payload] | Array") -> list[bytes | memoryview]:
    """What `Sender.send_many` sends where it gets no array: `octets_of` each payload.

    Raises TypeError, ConfigurationError.
    """
    return [one if type(one) is bytes else octets_of(one) for one in cast("Iterable[Payload]", payloads)]


def rows_of(payloads: "Iterable[Payload] | Array") -> tuple[bytes | memoryview, int] | None:
    """The octets of an array with two dimensions or more, of which each row is a message, and how many rows.

    None for what is no array.  Raises TypeError, ConfigurationError.
    """
    if isinstance(payloads, str | Mapping):
        raise TypeError(f"send_many takes several payloads: send(payload) sends one {type(payloads).__name__}")
    try:
        view = memoryview(cast(Any, payloads))
    except (TypeError, ValueError):
        return None
    if view.ndim < 2:
        raise TypeError(
            "send_many takes several payloads, or an array with a message in each row: send(payload) sends one"
        )
    return octets_of(cast(Any, payloads)), len(view)


def each_row(octets: bytes | memoryview, count: int) -> list[bytes | memoryview]:
    """The octets of each row."""
    size = len(octets) // max(1, count)
    if 0 < size <= COPIED_OCTETS:
        return [row for (row,) in struct.iter_unpack(f"{size}s", octets)]
    return [octets[at : at + size] for at in range(0, len(octets), size)] if size else [b""] * count


def _right_call(payload: object, error: Exception) -> str:
    """How something that is not sent as it stands can be sent, or the ``error`` where it is bytes-like."""
    if hasattr(payload, "__array__"):  # of numpy with a dtype that is no buffer, or of another library
        return "send_array(numpy.asarray(payload)) sends it with dtype and shape"
    if callable(getattr(payload, "encode", None)):  # such as `Spectrum`
        return "send(payload.encode()) sends its octets"
    if isinstance(error, ValueError):  # such as a memoryview that was released
        return str(error)
    if payload is None:
        return "send([payload]) sends it as JSON"
    if isinstance(payload, int | float | complex):
        return "send_array(numpy.asarray(payload)) sends it as an array, send([payload]) a real one as JSON"
    if isinstance(payload, Mapping):
        return "send(dict(payload)) sends it as JSON"
    if isinstance(payload, Iterable):
        return "send(list(payload)) sends it as JSON, send_array(numpy.array(list(payload))) as an array"
    if is_dataclass(payload):
        return "send(dataclasses.asdict(payload)) sends it as JSON"
    return (
        "send takes octets (bytes, bytearray, memoryview, an array's), text, and a dict or list, which it sends as "
        "JSON; send_array takes a numpy array with dtype and shape"
    )
