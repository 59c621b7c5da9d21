"""The JSON schema of a recording's metadata: the `dapp:` namespace, which the sigmf library does not check, and the
required `core:` keys (docs/ran-emulator.md)."""

from typing import Any

from twinlink.errors import TwinlinkError

_INTEGER = {"type": "integer"}

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
                "core:datatype": {"const": "ci16_le"},
                "core:sample_rate": {"type": "number", "exclusiveMinimum": 0},
                "core:num_channels": {"const": 1},
                "core:trailing_bytes": {"const": 0},
                "core:dataset": {"type": "string", "pattern": "^[^/]+$"},
                "core:sha512": {"type": "string", "pattern": "^[0-9a-fA-F]{128}$"},
                "dapp:domain": {"const": "frequency"},
                "dapp:n_prbs": _INTEGER | {"minimum": 1, "maximum": 273},
                "dapp:n_sc_per_prb": {"const": 12},
                "dapp:n_ants": {"const": 1},
                "dapp:n_symbols": {"const": 1},
                "dapp:samples_per_slot": _INTEGER | {"minimum": 12},
                "dapp:subcarrier_spacing_khz": {"type": "number", "exclusiveMinimum": 0, "maximum": 960},
                "twinlink:record_period_ms": {"type": "number", "exclusiveMinimum": 0, "maximum": 1e6},
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
                    "core:frequency": {"type": "number", "minimum": 0, "maximum": 1e12},
                    "core:header_bytes": {"const": 0},
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
                    "core:freq_lower_edge": {"type": "number"},
                    "core:freq_upper_edge": {"type": "number"},
                },
            },
        },
    },
}


class RecordingError(TwinlinkError, ValueError):
    """A recording cannot be read or played; the message names the file and the wrong key."""


def check(metadata: object) -> None:
    """Raise RecordingError that names the first wrong key."""
    import jsonschema  # the extra `recording`

    errors = sorted(jsonschema.Draft202012Validator(SCHEMA).iter_errors(metadata), key=lambda error: list(error.path))
    if errors:
        error = errors[0]
        where = ".".join(f"[{part}]" if isinstance(part, int) else str(part) for part in error.absolute_path)
        raise RecordingError(f"{where.replace('.[', '[') or 'the metadata'}: {error.message}")
