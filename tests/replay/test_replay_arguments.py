"""Blocks check their arguments at construction, before a flowgraph starts."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from twinlink_replay.blocks import Analyser, PduSink, PduSource, Retransmit, Source, StreamSink

import twinlink

LISTEN = "tcp/127.0.0.1:7447"  # no block opens it: the flowgraph does not start


@pytest.mark.parametrize("block", [Source, PduSource, PduSink, StreamSink])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one of listen= and connect="),
        ({"listen": LISTEN, "connect": LISTEN}, "exactly one of listen= and connect="),
        ({"transport": "zeromqq", "listen": LISTEN}, "no transport is called 'zeromqq'; known: "),
        ({"listen": ":7447"}, "':7447' is not of the form host or host:port"),
        ({"listen": 7447}, "7447 is not of the form host or host:port"),
        ({"connect": [LISTEN, LISTEN]}, "a block connects to one endpoint"),
        ({"listen": "tcp/0.0.0.0:65535"}, "zeromq needs 2 ports from 65535 up"),
        ({"listen": LISTEN, "node": "two\nlines"}, "node must be a string"),
        ({"listen": LISTEN, "identity": "no/such/folder"}, "no/such/folder cannot be read: .* `twinlink key new"),
        ({"listen": LISTEN, "identity": b"folder"}, "identity must be the folder of an identity"),
        ({"listen": LISTEN, "flow": "_link"}, "flow must be 1 to 63 letters"),
        ({"listen": LISTEN, "flow": None}, "flow must be 1 to 63 letters"),
        ({"link": "zeromq"}, "link must be what twinlink.open returns"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_arguments_of_the_link(block: Callable[..., Any], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(twinlink.ConfigurationError, match=message):
        block(**arguments)


@pytest.mark.parametrize(
    ("block", "arguments", "message"),
    [
        (Source, {"payload": "u8"}, "payload must be one of spectrum, ci16, cf32, not 'u8'"),
        (Source, {"buffer_octets": 0}, "buffer_octets must be a whole number from 1, not 0"),
        (Source, {"buffer_octets": "64M"}, "buffer_octets must be a whole number from 1, not '64M'"),
        (Source, {"zero_fill": "False"}, "zero_fill must be True or False, not 'False'"),
        (PduSource, {"payload": "wav"}, "payload must be one of spectrum, ci16, cf32, u8, text, not 'wav'"),
        (PduSource, {"vector": "c32"}, "vector must be one of complex, s16, not 'c32'"),
        (StreamSink, {"payload": "spectrum"}, "payload must be one of cf32, ci16, not 'spectrum'"),
    ],
)
def test_arguments_of_one_block(block: Callable[..., Any], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(twinlink.ConfigurationError, match=message):
        block(listen=LISTEN, **arguments)


@pytest.mark.parametrize(
    ("block", "arguments", "message"),
    [
        (Analyser, {"n_prbs": 0}, "n_prbs must be a whole number from 1 to 275, not 0"),
        (Analyser, {"n_prbs": 276}, "n_prbs must be a whole number from 1 to 275, not 276"),
        (Analyser, {"n_prbs": 106.0}, "n_prbs must be a whole number from 1 to 275, not 106.0"),
        (Analyser, {"n_prbs": True}, "n_prbs must be a whole number from 1 to 275, not True"),
        (Analyser, {"average_records": 0}, "average_records must be a finite number from 1, not 0"),
        (Analyser, {"average_records": float("inf")}, "average_records must be a finite number from 1, not inf"),
        (Retransmit, {"n_prbs": -1}, "n_prbs must be a whole number from 1 to 275, not -1"),
        (Retransmit, {"fft_size": 2048.0}, "fft_size must be a whole number from 1 to 65536, not 2048.0"),
        (Retransmit, {"fft_size": 2**20}, "fft_size must be a whole number from 1 to 65536, not 1048576"),
        (Retransmit, {"scale": float("nan")}, "scale must be a finite number, not nan"),
        (Retransmit, {"scale": "1/2048"}, "scale must be a finite number, not '1/2048'"),
    ],
)
def test_numbers(block: Callable[..., Any], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(twinlink.ConfigurationError, match=message):
        block(**arguments)


def test_numbers_of_numpy_are_numbers() -> None:
    """A variable of a flowgraph may hold one."""
    n_prbs: Any = np.int32(51)
    size: Any = np.int64(1024)
    scale: Any = np.float32(1)
    Analyser(n_prbs)
    Retransmit(n_prbs, size, scale=scale)
    Source(listen=LISTEN, buffer_octets=size)
