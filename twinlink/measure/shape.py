"""Whether what a file holds is as a JSON schema (2020-12) has it: so much of that as ours uses.

jsonschema can do all of it, and would have to be installed wherever a report is made.
"""

import math
import re
from typing import Any

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
_LONGEST = 60  # characters of a value that is told


def wrong(value: Any, schema: dict[str, Any], root: dict[str, Any], where: str = "") -> str | None:
    """The first part of a value that is not as it must be, and what is wrong with it; None where all is well.

    Args:
        value: from JSON.
        schema: what it is held to, a part of ``root``.
        where: what the value is called, such as ``cells[1].octets``.
    """
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if found := wrong(value, root["$defs"][name], root, where):
            return found
    if "anyOf" in schema:
        every = [wrong(value, each, root, where) for each in schema["anyOf"]]
        if all(every):
            return max(filter(None, every), key=lambda text: len(text.split()[0]))  # of the one that fits the farthest
    if not (_is_of_type(value, schema) and _is_within(value, schema)):
        text = repr(value)
        return f"{where} cannot be {text if len(text) <= _LONGEST else text[:_LONGEST] + '...'}"
    if isinstance(value, dict):
        return _wrong_field(value, schema, root, f"{where}." if where else "")
    if isinstance(value, list):
        parts = (wrong(each, schema.get("items", {}), root, f"{where}[{at}]") for at, each in enumerate(value))
        return next(filter(None, parts), None)
    return None


def _wrong_field(value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], where: str) -> str | None:
    for name in schema.get("required", ()):
        if name not in value:
            return f"{where}{name} is missing"
    known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    parts = (wrong(each, known.get(name, others), root, f"{where}{name}") for name, each in value.items())
    return next(filter(None, parts), None)


def _is_of_type(value: Any, schema: dict[str, Any]) -> bool:
    names = schema.get("type", list(_TYPES))
    for name in [names] if isinstance(names, str) else names:
        if isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool)):
            return True
    return False


def _is_within(value: Any, schema: dict[str, Any]) -> bool:
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        return False
    if isinstance(value, str):
        return len(value) >= schema.get("minLength", 0) and bool(re.search(schema.get("pattern", ""), value))
    if isinstance(value, list):
        return bool(schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", math.inf))
    if isinstance(value, int | float):
        low, above = schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf)
        return bool(low <= value <= schema.get("maximum", math.inf) and (value > above or above == -math.inf))
    return True
