"""Arrays as payloads, in numpy's own format: the header of an .npy file, which has dtype and shape, then the samples.

Format: numpy.lib.format, versions 1.0 and 2.0.  Nothing is pickled, on either side.
"""

from io import BytesIO
from math import prod
from typing import Any

import numpy as np
from numpy.lib import format as format_module

from .errors import ConfigurationError, MalformedPayload

MAX_HEADER = 10_000  # octets; as `numpy.load` takes, since a longer one may be costly to parse

npy: Any = format_module  # its functions are not annotated
READ = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}

Array = np.ndarray[Any, np.dtype[Any]]


def check(array: Array) -> None:
    """Raises TypeError for what is no array, or one of Python objects, or a masked one."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"not a numpy array but {type(array).__name__}: {_right_call(array)}")
    if array.dtype.hasobject:
        raise TypeError(
            f"an array of dtype {array.dtype} holds Python objects, which would have to be pickled; give it a numeric "
            "dtype with astype()"
        )
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError("a masked array has two parts; send its data and its mask as two arrays")


def _right_call(payload: object) -> str:
    if isinstance(payload, str | dict):
        return "send() takes text, and dicts as JSON"
    if isinstance(payload, bytes | bytearray | memoryview):
        return "send() takes octets"
    return "make one with numpy.asarray()"


def encode(array: Array) -> bytes:
    """The octets of an array, in C order, or in Fortran order where it has that.  Copies it once.

    Raises:
        TypeError: as `check` does.
        ConfigurationError: the header cannot hold its dtype, such as field names that are not Latin-1.
    """
    check(array)
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        array = np.ascontiguousarray(array)
    head = BytesIO()
    try:
        npy.write_array_header_1_0(head, npy.header_data_from_array_1_0(array))
    except ValueError as error:
        raise ConfigurationError(f"dtype {array.dtype} cannot be written as an .npy header: {error}") from error
    if head.tell() > MAX_HEADER:
        raise ConfigurationError(f"the .npy header of this dtype has {head.tell()} octets; {MAX_HEADER} is the limit")
    rows = array if array.flags.c_contiguous else array.T
    samples = rows.reshape(-1).view(np.uint8) if rows.nbytes else np.empty(0, np.uint8)
    return b"".join((head.getvalue(), samples.data))


def how_to_split(array: Array, most: int) -> str:
    """The line of Python that sends an array in parts of at most ``most`` octets, which is above `MAX_HEADER`."""
    whole = "array"
    rows, row_octets = (len(array), array.nbytes // len(array)) if array.ndim and len(array) else (1, array.nbytes)
    if row_octets > most - MAX_HEADER:
        whole, rows, row_octets = "array.reshape(-1)", array.size, array.itemsize
    parts = -(-rows // max(1, (most - MAX_HEADER) // max(1, row_octets)))
    return f"for part in numpy.array_split({whole}, {parts}): sender.send_array(part)"


def decode(payload: bytes | memoryview) -> Array:
    """The array in a payload, read-only: a view of the payload's memory, no copy.

    Raises MalformedPayload.
    """
    head = BytesIO(bytes(payload[:MAX_HEADER]))
    try:
        version = npy.read_magic(head)
        if version not in READ:
            raise ValueError(f"version {version[0]}.{version[1]} is not known here")
        shape, is_fortran, dtype = READ[version](head, max_header_size=MAX_HEADER)
    except Exception as error:  # the header is a Python literal of the peer's; parsing it may fail in many ways
        raise MalformedPayload(f"the payload is not an array in .npy format: {error}") from error
    if dtype.hasobject:
        raise MalformedPayload(f"an array of dtype {dtype} holds pickled Python objects, which are not read")
    count, begin = prod(shape), head.tell()
    if min(shape, default=0) < 0 or len(payload) - begin != count * dtype.itemsize:
        raise MalformedPayload(
            f"an array of dtype {dtype} and shape {shape} has {count * dtype.itemsize} octets of samples, "
            f"not {len(payload) - begin}"
        )
    array: Array
    try:
        if count * dtype.itemsize:
            array = np.frombuffer(payload, dtype, count, begin).reshape(shape, order="F" if is_fortran else "C")
        else:
            array = np.empty(shape, dtype)
    except ValueError as error:  # it has more dimensions than numpy takes, or is empty and has longer ones
        raise MalformedPayload(f"an array of dtype {dtype} and shape {shape} cannot be made: {error}") from error
    array.flags.writeable = False
    return array
