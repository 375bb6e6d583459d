"""What is known of built-in tools before their code is imported: their records, made from it and shipped as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolpost.contracts.spec import SafetyProfile, ToolCategory, ToolSpec, ToolTarget

if TYPE_CHECKING:
    from collections.abc import Iterable

RECORDS = Path(__file__).with_name("records.json")
_FIELDS = (
    *("name", "description", "category", "input_schema", "output_schema", "model_schema", "side_effects"),
    *("safety", "replay", "timeout_s", "tags", "validate_inputs", "host_argument"),
)


def read_records() -> dict[str, ToolSpec]:
    """The records by name."""
    return {facts["name"]: _spec(facts) for facts in json.loads(RECORDS.read_text(encoding="utf-8"))}


def written(specs: Iterable[ToolSpec]) -> str:
    """The file of these records."""
    return json.dumps([{name: getattr(spec, name) for name in _FIELDS} for spec in specs], indent=1) + "\n"


def _spec(facts: dict[str, Any]) -> ToolSpec:
    typed: dict[str, Any] = {
        **facts,
        "category": ToolCategory(facts["category"]),
        "safety": SafetyProfile(*facts["safety"]),
        "tags": tuple(facts["tags"]),
        "target": builtin_target(facts["name"]),
    }
    return ToolSpec(**typed)


def builtin_target(name: str) -> ToolTarget:
    """The target of a built-in tool, which is Toolpost's own code whatever its configuration."""
    return ToolTarget("builtin", f"the built-in tool {name}")
