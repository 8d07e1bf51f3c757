"""What a trace must be for Perfetto to open it."""

from __future__ import annotations

# The Trace Event Format, as far as it is used here: phases, and what each must have.
_COMMON = {
    "name": {"type": "string"},
    "pid": {"type": "integer"},
    "tid": {"type": "integer"},
    "ts": {"type": "number", "minimum": 0},
}


def _event(phase, required, **properties):
    return {
        "properties": {"ph": {"const": phase}, **_COMMON, **properties},
        "required": ["ph", "name", "pid", *required],
    }


SCHEMA = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "traceEvents": {
            "type": "array",
            "items": {
                "oneOf": [
                    _event("M", ["tid", "args"], args={"required": ["name"]}),
                    _event("X", ["tid", "ts", "dur"], dur={"type": "number", "minimum": 0}),
                    _event("b", ["id", "cat", "ts"]),
                    _event("e", ["id", "cat", "ts"]),
                    _event(
                        "C",
                        ["ts", "args"],
                        args={"additionalProperties": {"type": "number"}},
                    ),
                ]
            },
        },
    },
}
