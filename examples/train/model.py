"""A model that is data alone: a small neural network (ReLU, softmax) as arrays, which numpy evaluates.

A body is what `examples.train.signed_model` signs:

```
octets       field
0 to 3       length L of the head, unsigned, in network byte order
4 to 3 + L   head: a JSON object with exactly the fields of `Model.encode`
4 + L to     arrays, float32 in little-endian order: mean, scale, then weights (inputs x outputs) and bias of each layer
```

Reading believes nothing: sizes are bounded before they are used, and every number is finite.
"""

import json
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlink.errors import MalformedPayload

FORMAT = "twinlink-prb-model/1"
MAX_OCTETS = 1024 * 1024  # of a body: the model of this example has 24 KB
MAX_HEAD_OCTETS = 16 * 1024
MAX_LAYERS, MAX_WIDTH, MAX_TEXT = 4, 512, 2000
MAX_CLASSES = 127  # an answer's octet has room for these (`examples.train.model_process`)
MAX_NUMBER = 1e4  # greatest weight: no product of so many layers of this width overflows float32
_LENGTH = struct.Struct(">I")
_FIELDS = {"format", "classes", "interferers", "features", "widths", "on", "off", "about"}

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Model:
    """Weights and thresholds.

    Attributes:
        classes: their names.
        interferers: how many of the last ones are interferers.
        features: names of the inputs, in order.
        mean, scale: of the inputs: the network sees ``(x - mean) * scale``.
        layers: weights of shape ``(inputs, outputs)`` and bias of each.
        on, off: probability of an interferer above which a PRB counts as interfered, and down to which it stays so.
        about: of what it was made, for a person.
    """

    classes: tuple[str, ...]
    interferers: int
    features: tuple[str, ...]
    mean: Array
    scale: Array
    layers: tuple[tuple[Array, Array], ...]
    on: float
    off: float
    about: str = ""

    def probabilities(self, features: Array) -> Array:
        """Of each class, shape ``(..., classes)``, of features ``(..., features)``."""
        values = (features - self.mean) * self.scale
        for number, (weights, bias) in enumerate(self.layers, 1):
            values = values @ weights + bias
            if number < len(self.layers):
                np.maximum(values, 0, out=values)
        values -= values.max(axis=-1, keepdims=True)
        np.exp(values, out=values)
        values /= values.sum(axis=-1, keepdims=True)
        return np.asarray(values, np.float32)

    def interference(self, probabilities: Array) -> Array:
        """Probability of an interferer, of any kind."""
        return np.asarray(probabilities[..., len(self.classes) - self.interferers :].sum(axis=-1), np.float32)

    def encode(self) -> bytes:
        """The body; the same model gives the same octets."""
        head = {
            "format": FORMAT, "classes": self.classes, "interferers": self.interferers, "features": self.features,
            "widths": [len(bias) for _, bias in self.layers], "on": self.on, "off": self.off, "about": self.about,
        }  # fmt: skip
        text = json.dumps(head, separators=(",", ":"), sort_keys=True).encode()
        arrays = [self.mean, self.scale, *(array for layer in self.layers for array in layer)]
        return b"".join([_LENGTH.pack(len(text)), text, *(array.astype("<f4").tobytes() for array in arrays)])

    @classmethod
    def decode(cls, body: bytes | memoryview) -> "Model":
        """Read a body.  Raises MalformedPayload, which says what is wrong."""
        octets = memoryview(body)
        if not _LENGTH.size <= len(octets) <= MAX_OCTETS:
            raise MalformedPayload(f"a model has at most {MAX_OCTETS:,} octets, this one has {len(octets):,}")
        end = _LENGTH.size + _LENGTH.unpack_from(octets)[0]
        if end > min(len(octets), _LENGTH.size + MAX_HEAD_OCTETS):
            raise MalformedPayload(f"its head is to end at octet {end:,}, beyond its end or {MAX_HEAD_OCTETS:,} octets")
        head = _head(bytes(octets[_LENGTH.size : end]))
        inputs = len(head["features"])
        shapes: list[tuple[int, ...]] = [(inputs,), (inputs,)]
        for width in head["widths"]:
            shapes += [(inputs, width), (width,)]
            inputs = width
        if inputs != len(head["classes"]):
            raise MalformedPayload(f"its last layer has {inputs} outputs for {len(head['classes'])} classes")
        arrays = _arrays(octets[end:], shapes)
        return cls(
            tuple(head["classes"]), head["interferers"], tuple(head["features"]), arrays[0], arrays[1],
            tuple(zip(arrays[2::2], arrays[3::2], strict=True)), float(head["on"]), float(head["off"]), head["about"],
        )  # fmt: skip


def _head(text: bytes) -> dict[str, Any]:
    try:
        head = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedPayload(f"its head is no JSON: {error}") from None
    if not isinstance(head, dict) or set(head) != _FIELDS or head["format"] != FORMAT:
        raise MalformedPayload(f"its head is not an object of {FORMAT} with exactly {', '.join(sorted(_FIELDS))}")
    for name in ("classes", "features"):
        if not _is_list(head[name], str, MAX_WIDTH) or any(len(text) > 40 for text in head[name]):
            raise MalformedPayload(f"{name} is not a list of 1 to {MAX_WIDTH} short names")
    if len(head["classes"]) > MAX_CLASSES:
        raise MalformedPayload(f"it has {len(head['classes'])} classes, and at most {MAX_CLASSES} classes can be told")
    if not _is_list(head["widths"], int, MAX_LAYERS) or not all(1 <= width <= MAX_WIDTH for width in head["widths"]):
        raise MalformedPayload(f"widths is not a list of 1 to {MAX_LAYERS} integers up to {MAX_WIDTH}")
    if type(head["interferers"]) is not int or not 1 <= head["interferers"] < len(head["classes"]):
        raise MalformedPayload("interferers is not a number of its classes")
    on, off = head["on"], head["off"]
    if not all(type(value) in (int, float) and 0 < value < 1 for value in (on, off)) or off > on:
        raise MalformedPayload("on and off are not thresholds with 0 < off <= on < 1")
    if not isinstance(head["about"], str) or len(head["about"]) > MAX_TEXT:
        raise MalformedPayload(f"about is not a text of at most {MAX_TEXT} characters")
    return head


def _is_list(value: object, kind: type, most: int) -> bool:
    return isinstance(value, list) and 1 <= len(value) <= most and all(type(item) is kind for item in value)


def _arrays(octets: memoryview, shapes: list[tuple[int, ...]]) -> list[Array]:
    sizes = [math.prod(shape) for shape in shapes]
    if len(octets) != 4 * sum(sizes):
        raise MalformedPayload(f"its arrays take {4 * sum(sizes):,} octets, and {len(octets):,} follow its head")
    numbers = np.frombuffer(octets, "<f4").astype(np.float32)
    if not (np.abs(numbers) <= MAX_NUMBER).all():  # not so for NaN either
        raise MalformedPayload(f"a number of it is not finite, or beyond {MAX_NUMBER:g}")
    parts = np.split(numbers, np.cumsum(sizes)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


class Answers:
    """Which PRBs count as interfered, record by record: probabilities with hysteresis.

    Args:
        model: has the thresholds.
        n_prbs: PRBs of a record.
    """

    def __init__(self, model: Model, n_prbs: int) -> None:
        self._on, self._off = model.on, model.off
        self._standing = np.zeros(n_prbs, np.bool_)

    def add(self, interference: Array) -> NDArray[np.bool_]:
        """Answers of shape ``(records, n_prbs)``, of the probabilities of the next records, of the same shape."""
        answers = np.zeros(interference.shape, np.bool_)
        for k, row in enumerate(interference):
            self._standing = np.where(self._standing, row > self._off, row > self._on)
            answers[k] = self._standing
        return answers
