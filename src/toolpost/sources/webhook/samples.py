"""A schema inferred from a sample: the types that it shows, and nothing that it requires."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.schema.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from toolpost.contracts.spec import JsonSchema

_DEEPEST = 8
_MOST_FIELDS = 100


def schema_of(value: Any, depth: int = 0) -> JsonSchema:
    """What a value is an example of; another number may have a fraction, and what is null here may be anything."""
    if value is None or depth > _DEEPEST:
        return {}
    if is_object(value):
        fields = list(value.items())[:_MOST_FIELDS]
        return {"type": "object", "properties": {name: schema_of(inner, depth + 1) for name, inner in fields}}
    if is_array(value):
        return _list_of(value, depth)
    if isinstance(value, bool):
        return {"type": "boolean"}
    return {"type": "string" if isinstance(value, str) else "number"}


def _list_of(items: list[Any], depth: int) -> JsonSchema:
    """Items of one kind are told; of a mixture, nothing is known of the next one."""
    kinds = [schema_of(item, depth + 1) for item in items[:_MOST_FIELDS]]
    if not kinds or any(kind != kinds[0] for kind in kinds):
        return {"type": "array"}
    return {"type": "array", "items": kinds[0]}
