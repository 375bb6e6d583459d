"""A tool's record without hidden characters: what no person sees, no model reads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolpost.schema.hidden_text import excerpt, first_hidden, hides, readable_schema, visible, visible_value
from toolpost.schema.shared_definitions import any_part

if TYPE_CHECKING:
    from toolpost.contracts.spec import JsonSchema, ToolSpec
    from toolpost.schema.shared_definitions import SharedDefinitions

HIDDEN = "hidden_characters"


def clean_spec(spec: ToolSpec, shared: SharedDefinitions | None = None) -> ToolSpec:
    """Take hidden characters out of what models read of a tool; `extra["hidden_characters"]` says where they were.

    Values are still checked against the schema as it came: only its texts change there. Where names or values of it
    hide something, the model sees a view without that.
    """
    found = _hidden_characters(spec, shared)
    if not found:
        return spec
    shown = spec.input_schema if spec.model_schema is None else spec.model_schema
    return replace(
        spec,
        description=visible(spec.description).text,
        input_schema=readable_schema(spec.input_schema),
        output_schema=readable_schema(spec.output_schema),
        model_schema=visible_value(shown)[0],
        tags=tuple(visible(tag).text for tag in spec.tags),
        extra={**spec.extra, HIDDEN: found},
    )


def _hidden_characters(spec: ToolSpec, shared: SharedDefinitions | None) -> list[str]:
    """Where a tool hides characters, each place with an excerpt in which they are escapes."""
    remote = spec.extra.get("remote_name")
    texts = {"name": remote if isinstance(remote, str) else "", "description": spec.description}
    schemas = {"input schema": spec.input_schema, "output schema": spec.output_schema, "tags": list(spec.tags)}
    found = [f"{place}: {excerpt(text)}" for place, text in texts.items() if excerpt(text)]
    return found + [f"{place}: {text}" for place, schema in schemas.items() if (text := _in_schema(schema, shared))]


def _in_schema(schema: JsonSchema | list[Any] | None, shared: SharedDefinitions | None) -> str:
    return excerpt(first_hidden(schema)) if schema is not None and any_part(schema, hides, shared) else ""
