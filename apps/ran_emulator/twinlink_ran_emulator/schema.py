"""The JSON schema of a recording's metadata: the `dapp:` namespace, which the sigmf library does not check, and the
`core:` keys that tell how the samples are to be read (docs/ran-emulator.md).

A ``description`` is the reason that a message adds to the refused value.
"""

import textwrap
from typing import Any

from twinlink.errors import TwinlinkError

_INTEGER = {"type": "integer"}
_HZ = {"type": "number", "minimum": 0, "maximum": 1e12}
_MESSAGE_LENGTH = 300  # a message has the refused value, which may be long
_EXTENSIONS = {"dapp": "1", "twinlink": "1"}  # name and major version of those that are known here

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["global", "captures", "annotations"],
    "properties": {
        "global": {
            "type": "object",
            "required": [
                "core:datatype",
                "core:sample_rate",
                "dapp:domain",
                "dapp:n_prbs",
                "dapp:n_sc_per_prb",
                "dapp:n_ants",
                "dapp:n_symbols",
                "dapp:samples_per_slot",
                "dapp:subcarrier_spacing_khz",
            ],
            "properties": {
                "core:version": {"type": "string", "pattern": r"^[01]\.", "description": "this program reads SigMF 1"},
                "core:datatype": {"const": "ci16_le", "description": "convert the samples"},
                "core:sample_rate": _HZ,
                "core:num_channels": {"const": 1, "description": "interleaved channels are not separated"},
                "core:offset": _INTEGER | {"minimum": 0},
                "core:metadata_only": {"const": False, "description": "a recording without data cannot be played"},
                "core:trailing_bytes": {"const": 0, "description": "cut them off"},
                "core:dataset": {"type": "string", "pattern": r"^[^/\x00]+$", "description": "a file beside this one"},
                "core:extensions": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name", "version", "optional"],
                        "properties": {
                            "name": {"type": "string"},
                            "version": {"type": "string"},
                            "optional": {"type": "boolean"},
                        },
                    },
                },
                "core:sha512": {"type": "string", "pattern": "^[0-9a-fA-F]{128}$"},
                "dapp:domain": {"const": "frequency"},
                "dapp:n_prbs": _INTEGER | {"minimum": 1, "maximum": 273},
                "dapp:n_sc_per_prb": {"const": 12},
                "dapp:n_ants": {"const": 1},
                "dapp:n_symbols": {"const": 1},
                "dapp:samples_per_slot": _INTEGER | {"minimum": 12},
                "dapp:subcarrier_spacing_khz": {"type": "number", "exclusiveMinimum": 0, "maximum": 960},
                "twinlink:record_period_ms": {"type": "number", "minimum": 1e-3, "maximum": 1e6},
            },
        },
        "captures": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["core:sample_start"],
                "properties": {
                    "core:sample_start": _INTEGER | {"minimum": 0},
                    "core:frequency": _HZ,
                    "core:global_index": _INTEGER | {"minimum": 0},
                    "core:datetime": {"type": "string"},
                    "core:header_bytes": {"const": 0, "description": "cut them out"},
                },
            },
        },
        "annotations": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["core:sample_start"],
                "properties": {
                    "core:sample_start": _INTEGER | {"minimum": 0},
                    "core:sample_count": _INTEGER | {"minimum": 0},
                    "core:label": {"type": "string"},
                    "core:freq_lower_edge": _HZ,
                    "core:freq_upper_edge": _HZ,
                },
            },
        },
    },
}


class RecordingError(TwinlinkError, ValueError):
    """A recording cannot be read or played; the message names the file and the wrong key."""


def check(metadata: object, schema: dict[str, Any] = SCHEMA) -> None:
    """Raise RecordingError that names the first wrong key."""
    import jsonschema  # the extra `recording`

    errors = sorted(jsonschema.Draft202012Validator(schema).iter_errors(metadata), key=lambda error: list(error.path))
    if errors:
        error = errors[0]
        where = ".".join(f"[{part}]" if isinstance(part, int) else str(part) for part in error.absolute_path)
        reason = f"; {error.schema['description']}" if "description" in error.schema else ""
        what = textwrap.shorten(error.message, _MESSAGE_LENGTH)
        raise RecordingError(f"{where.replace('.[', '[') or 'the metadata'}: {what}{reason}")
    assert isinstance(metadata, dict)
    for index, extension in enumerate(metadata["global"].get("core:extensions", ())):
        name, version = extension["name"], extension["version"]
        if not extension["optional"] and _EXTENSIONS.get(name) != version.partition(".")[0]:
            known = ", ".join(f"{name} {major}" for name, major in _EXTENSIONS.items())
            raise RecordingError(
                f"global.core:extensions[{index}]: the recording requires the extension {name!r} {version}, without "
                f"which its samples cannot be understood; known here: {known}"
            )
