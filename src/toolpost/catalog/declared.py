"""Tools that an operator wrote down, as the records that the catalog holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.catalog.names import canonical_name
from toolpost.contracts.spec import SafetyProfile, ToolCategory, ToolSpec, destructive_of, replay_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.options import DeclaredTool
    from toolpost.contracts.spec import JsonSchema, ToolTarget


_OPEN = frozenset(
    {"$ref", "additionalProperties", "allOf", "anyOf", "if", "oneOf", "patternProperties", "unevaluatedProperties"}
)


def closed_schema(schema: JsonSchema) -> JsonSchema:
    """A schema that takes what it names and no more, unless it says otherwise or names nothing.

    What it does not name would go nowhere, or where nobody expects it.
    """
    if "properties" not in schema or _OPEN & schema.keys():
        return schema
    return {**schema, "additionalProperties": False}


def declared_spec(
    source: str,
    name: str,
    *,
    tool: DeclaredTool,
    kind: str,
    category: ToolCategory = ToolCategory.NETWORK,
    network: bool = True,
    extra: Mapping[str, Any] | None = None,
    target: ToolTarget | None = None,
) -> ToolSpec:
    """The record of one declared tool; `kind` is the word for its source, by which it is found and tagged."""
    schema = tool.input_schema if "type" in tool.input_schema else {"type": "object", **tool.input_schema}
    return ToolSpec(
        name=canonical_name(source, name),
        description=tool.description,
        category=category,
        input_schema=schema,
        output_schema=tool.output_schema,
        side_effects=tool.side_effects,
        replay=tool.replay or replay_of(tool.side_effects),
        safety=SafetyProfile(
            network=network, destructive=destructive_of(tool.side_effects, tool.destructive), open_world=network
        ),
        timeout_s=tool.timeout_s,
        tags=tuple(dict.fromkeys((kind, source, *tool.tags))),
        source=source,
        origin=source,
        extra={"source": kind, "namespace": source, "remote_name": name, **(extra or {})},
        target=target,
    )
