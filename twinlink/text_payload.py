"""Text and JSON as payloads: UTF-8 (RFC 3629), and JSON of RFC 8259 in UTF-8, without a mark of their own.

The receiver knows its flows, and asks a message for what it expects.
"""

import json
from typing import Any, NoReturn

from .errors import ConfigurationError, MalformedPayload

SHOWN_OCTETS = 12  # of a payload, in an error

_ARRAY_MAGIC = b"\x93NUMPY"


def encode_text(text: str) -> bytes:
    """The octets of a text.  Raises ConfigurationError where it holds half a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"the text cannot be written in UTF-8: {error}") from error


def encode_json(value: dict[str, Any] | list[Any]) -> bytes:
    """The octets of a dict or list; numpy's numbers and arrays in it become numbers and lists.

    Raises:
        TypeError: something in it has no form in JSON.
        ConfigurationError: it holds NaN or an infinity, refers to itself, or is nested too deeply.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"the {type(value).__name__} cannot be written as JSON: {error}; for NaN and infinities send None"
        ) from error
    return encode_text(text)


def _plain(value: Any) -> Any:
    """For what json does not know: the numbers and lists in numpy's."""
    if hasattr(value, "dtype"):
        return value.tolist()
    raise TypeError(
        f"a value of type {type(value).__name__} has no form in JSON; "
        "give a str, int, float, bool, None, list or dict in its place"
    )


def decode_text(payload: bytes | memoryview) -> str:
    """The text in a payload.  Raises MalformedPayload."""
    try:
        return str(payload, "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedPayload(f"the payload is not UTF-8 text: {error.reason}; {advice(payload, 'text')}") from error


def decode_json(payload: bytes | memoryview) -> Any:
    """The JSON value in a payload.  Raises MalformedPayload."""
    try:
        return json.loads(str(payload, "utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise MalformedPayload(f"the payload is not JSON: {error}; {advice(payload, 'json')}") from error


def short_json(payload: bytes | memoryview, most_octets: int) -> Any:
    """The JSON value in a payload of a format of twinlink, of at most so many octets.  Raises MalformedPayload."""
    if len(payload) > most_octets:
        raise MalformedPayload(f"{len(payload)} octets, of which at most {most_octets} are read")
    try:
        return json.loads(bytes(payload))
    except (ValueError, RecursionError) as error:
        raise MalformedPayload(f"not UTF-8 JSON: {error}") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number in JSON")


def is_array(payload: bytes | memoryview) -> bool:
    """Whether a payload begins as an array in .npy format does."""
    return bytes(payload[: len(_ARRAY_MAGIC)]) == _ARRAY_MAGIC


def advice(payload: bytes | memoryview, asked: str) -> str:
    """How a payload can be read that is not what was ``asked`` for, as the end of a message."""
    if is_array(payload):
        return "it begins as an array of send_array() does: read it with message.array()"
    begin = bytes(payload[:SHOWN_OCTETS])
    what = f"it has {len(payload)} octets" + (f" and begins with {begin!r}" if begin else "")
    if begin[:1] in {b"{", b"["} and asked == "array":
        return f"{what}: if that is JSON, read it with message.json()"
    if begin.isascii() and begin.decode().isprintable() and asked == "json":
        return f"{what}: if that is text, read it with message.text()"
    return (
        f"{what}: octets of send() are read from message.payload, such as with "
        "numpy.frombuffer(message.payload, dtype); to keep dtype and shape, send with send_array()"
    )
