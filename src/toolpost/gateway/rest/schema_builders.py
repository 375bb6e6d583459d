"""Builders of JSON Schemas for the REST interface."""

from __future__ import annotations

from typing import Any

TEXT: dict[str, Any] = {"type": "string"}
MAYBE_TEXT: dict[str, Any] = {"type": ["string", "null"]}


def ref(name: str) -> dict[str, Any]:
    """Return a reference to a component."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an array."""
    return {"type": "array", "items": items}


def page(name: str) -> dict[str, Any]:
    """Return the schema of a page of components."""
    return record({"items": array(ref(name)), "next": MAYBE_TEXT})


def record(required: dict[str, Any], optional: dict[str, Any] | None = None, about: str = "") -> dict[str, Any]:
    """Return the schema of an object with these properties."""
    schema = {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}
    return {**schema, "description": about} if about else schema


def texts(*names: str) -> dict[str, Any]:
    """Return properties that are strings."""
    return dict.fromkeys(names, TEXT)


def or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that may be null."""
    return {**schema, "type": ["object", "null"]}


def json_text(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a string that contains a JSON document."""
    return {"type": "string", "contentMediaType": "application/json", "contentSchema": schema}
