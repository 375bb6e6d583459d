"""Definitions of tools as MCP clients list them, without the SDK of MCP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.schema.json_values import is_object
from toolpost.schema.subschemas import is_object_schema, nest_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.spec import ToolSpec

WRAPPED = "result"
_SMALL = frozenset({"boolean", "integer", "null", "number"})  # results of these types are never references
_REFERENCE: dict[str, Any] = {
    "type": "object",
    "description": "A large result: a preview, and the URI of the resource with the full result",
    "properties": {
        "artifact_id": {"type": "string"},
        "uri": {"type": "string"},
        "media_type": {"type": "string"},
        "size": {"type": "integer"},
        "preview": {"type": "string"},
    },
    "required": ["artifact_id", "uri", "media_type", "size"],
}


def tool_definition(name: str, spec: ToolSpec, *, links_large: bool = True) -> dict[str, Any]:
    """Return a tool for `tools/list`, with the unchanged schemas of its source.

    With `links_large`, the output schema also accepts a reference to a large result.
    """
    extra = spec.extra
    definition: dict[str, Any] = {
        "name": name,
        "description": spec.description,
        "inputSchema": _object(spec.input_schema),
    }
    for key in ("title", "icons"):
        if extra.get(key):
            definition[key] = extra[key]
    if spec.output_schema is not None:
        definition["outputSchema"] = output_schema(spec, links_large=links_large)
    definition["annotations"] = _annotations(spec)
    if extra.get("source") == "mcp" and extra.get("meta"):
        definition["_meta"] = extra["meta"]
    return definition


def _object(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema with the type `object` that MCP requires."""
    return schema if schema.get("type") == "object" else {"type": "object", **schema}


def output_schema(spec: ToolSpec, *, links_large: bool) -> dict[str, Any]:
    """Return the output schema; a result that is not an object is wrapped in one, as MCP requires."""
    own = spec.output_schema or {}
    schema = dict(_object(own))
    if is_wrapped(spec):
        inner, stored = nest_schema(own, "properties", WRAPPED)
        schema = {**_dialect(own), **stored, "type": "object", "properties": {WRAPPED: inner}, "required": [WRAPPED]}
    if not links_large or own.get("type") in _SMALL:
        return schema
    inner, stored = nest_schema(schema, "anyOf", "0")
    return {**_dialect(own), **stored, "type": "object", "anyOf": [inner, _REFERENCE]}


def _dialect(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"$schema": schema["$schema"]} if "$schema" in schema else {}


def is_wrapped(spec: ToolSpec) -> bool:
    """Return whether results of a tool are wrapped in an object."""
    return spec.output_schema is not None and not is_object_schema(spec.output_schema)


def _annotations(spec: ToolSpec) -> dict[str, Any]:
    """Return annotations from the known effects, and the title that the source declares.

    The hints of an untrusted source are used only if they are stricter, because clients would attribute them to us.
    """
    claimed: Any = spec.extra.get("annotations")
    title: Any = claimed.get("title") if is_object(claimed) else None
    read_only = not spec.has_effects
    known: dict[str, Any] = {"title": title} if isinstance(title, str) else {}
    known |= {"readOnlyHint": read_only, "openWorldHint": spec.safety.open_world}
    if not read_only:
        known |= {
            "destructiveHint": spec.safety.destructive is not False,
            "idempotentHint": spec.replay == "idempotent",
        }
    return known


def differs(before: Mapping[str, ToolSpec], after: Mapping[str, ToolSpec]) -> bool:
    """Return whether two lists of tools differ for clients."""
    return list(before) != list(after) or any(
        spec is not after[name] and tool_definition(name, spec) != tool_definition(name, after[name])
        for name, spec in before.items()
    )
