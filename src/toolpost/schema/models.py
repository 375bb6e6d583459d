"""A typed view of a tool's input: a pydantic model for people who write Python.

A view only: it knows the simple types and is open where a schema says more than it can
tell. The schema stays the contract that calls are validated against.
"""

from __future__ import annotations

import keyword
import re
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from toolpost.schema.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from toolpost.contracts.spec import JsonSchema

_SIMPLE: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool}
_LISTS: dict[str, Any] = {"string": list[str], "integer": list[int], "number": list[float], "boolean": list[bool]}
_RESERVED = frozenset(dir(BaseModel))


def input_model(schema: JsonSchema, name: str = "Input") -> type[BaseModel]:
    """A model of the arguments: what is required must be given, the rest may be left out and is then not sent."""
    required: set[str] = set(schema.get("required") or ())
    properties: Any = schema.get("properties")
    fields: dict[str, Any] = {}
    for original, inner in properties.items() if is_object(properties) else ():
        kind = _type(inner)
        default = Field(alias=original) if original in required else Field(default=None, alias=original)
        fields[_field_name(original, fields)] = (kind if original in required else kind | None, default)
    extra: Literal["forbid", "allow"] = "forbid" if schema.get("additionalProperties") is False else "allow"
    config = ConfigDict(extra=extra, validate_by_name=True, validate_by_alias=True)
    return create_model(re.sub(r"\W", "_", name), __config__=config, **fields)


def _type(schema: Any) -> Any:
    """The Python type of a simple schema; anything richer is open."""
    kind = schema.get("type") if is_object(schema) else None
    if is_array(kind):
        named = [one for one in kind if one != "null"]
        kind = named[0] if len(named) == 1 else None
    if kind == "array":
        items = schema.get("items")
        inner = items.get("type") if is_object(items) else None
        return _LISTS.get(inner, list[Any]) if isinstance(inner, str) else list[Any]
    if kind == "object":
        return dict[str, Any]
    return _SIMPLE.get(kind, Any) if isinstance(kind, str) else Any


def _field_name(original: str, taken: dict[str, Any]) -> str:
    """A legal field name for any property; the property keeps its own as an alias."""
    name = re.sub(r"\W", "_", original).lstrip("_") or "field"
    if name[0].isdigit() or keyword.iskeyword(name) or name in _RESERVED or name.startswith("model_"):
        name = f"field_{name}"
    while name in taken:
        name += "_"
    return name
