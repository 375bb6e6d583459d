"""What all contenders share: the function of the native call and its arguments, and the schemas of large catalogs."""

from __future__ import annotations

from typing import Any

ARGUMENTS = {"a": 1, "b": 2, "c": 3}
SUM = 6


async def add3(a: int, b: int, c: int) -> int:
    """Add three numbers."""
    return a + b + c


def schema(number: int) -> dict[str, Any]:
    """A raw schema of five properties, as a server would send it: every tool has its own."""
    return {
        "type": "object",
        "properties": {
            f"id_{number}": {"type": "string", "description": f"The id of thing {number}"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
            "state": {"type": "string", "enum": ["open", "closed", "all"]},
            "labels": {"type": "array", "items": {"type": "string"}},
            "dry_run": {"type": "boolean", "default": False},
        },
        "required": [f"id_{number}"],
        "additionalProperties": False,
    }
