"""Tool specs of operations: names, descriptions, input and output schemas, targets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from toolpost.catalog.names import canonical_name
from toolpost.catalog.specs import effects_of_method
from toolpost.contracts.spec import JsonSchema, ToolCategory, ToolSpec, ToolTarget
from toolpost.schema.json_values import AnySchema, is_object
from toolpost.sources.openapi import models
from toolpost.sources.openapi.definitions import Definitions
from toolpost.sources.openapi.markdown import shorten
from toolpost.sources.openapi.request_bodies import body_format, choose_media_type

# The limit of OpenAI's function calling.
_MAX_DESCRIPTION = 1024
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_MAX_RESPONSE_SCHEMAS = 300
_NULL: JsonSchema = {"type": "null"}
_REDIRECT: JsonSchema = {
    "type": "object",
    "properties": {"status": {"type": "integer"}, "location": {"type": "string"}},
    "required": ["status", "location"],
}


def tool_spec(operation: models.ApiOperation, *, source: str) -> ToolSpec:
    """Build the ToolSpec of the tool that calls an operation."""
    effects = effects_of_method(operation.method)
    return ToolSpec(
        name=canonical_name(source, operation.tool_name),
        description=_describe(operation),
        category=ToolCategory.NETWORK,
        input_schema=input_schema(operation),
        output_schema=output_schema(operation),
        side_effects=effects.side_effects,
        replay=effects.replay,
        safety=effects.safety,
        tags=tuple(dict.fromkeys(("http", source, *operation.tags))),
        source=source,
        origin=source,
        deprecated=operation.deprecated,
        extra={
            "source": "openapi",
            "namespace": source,
            "remote_name": operation.operation_id or operation.tool_name,
            "method": operation.method,
            "path": operation.path,
        },
        target=_target(operation),
    )


def _target(operation: models.ApiOperation) -> ToolTarget:
    """Return the target of a call: method, URL, and where each argument goes."""
    server = operation.servers[0].rstrip("/") if operation.servers else ""
    body = operation.body
    return ToolTarget.of(
        "http",
        f"{operation.method} {server}/{operation.path.lstrip('/')}",
        arguments=sorted(
            [one.argument, one.name, one.location, one.style, one.explode] for one in operation.parameters
        ),
        body=None if body is None else [body.argument, body.content_type],
    )


def _describe(operation: models.ApiOperation) -> str:
    summary, description = operation.summary, operation.description
    if summary and not description.lower().startswith(summary.rstrip(".").lower()):
        description = _join_summary(summary, description)
    whole = _CONTROL.sub("", description) or f"{operation.method} {operation.path}"
    return shorten(whole, _MAX_DESCRIPTION)


def _join_summary(summary: str, description: str) -> str:
    """Join summary and description in one paragraph, so that one-line listings show more than a title."""
    if not description[:1].isalnum():  # nothing, or Markdown that needs a line of its own
        return f"{summary}\n\n{description}".strip()
    return f"{summary} {description}" if summary[-1] in ".!?:…" else f"{summary}. {description}"


def input_schema(operation: models.ApiOperation) -> JsonSchema:
    """Return the schema of the arguments: one property per parameter and one for the body."""
    fields: list[models.Parameter | models.RequestBody] = [*operation.parameters]
    if operation.body is not None:
        fields.append(operation.body)
    schema: JsonSchema = {
        "type": "object",
        "properties": {field.argument: _argument(field) for field in fields},
        "required": [field.argument for field in fields if field.required],
        "additionalProperties": False,
    }
    return _with_definitions(schema, operation.definitions)


def _argument(field: models.Parameter | models.RequestBody) -> AnySchema:
    schema: JsonSchema = dict(field.schema) if is_object(field.schema) else {}
    if field.description:
        schema["description"] = field.description
    if getattr(field, "deprecated", False):
        schema["deprecated"] = True
    return schema


def _with_definitions(schema: JsonSchema, definitions: Mapping[str, Any], *, most: int | None = None) -> JsonSchema:
    shared = definitions if isinstance(definitions, Definitions) else Definitions(dict(definitions))
    needed = shared.collect(schema, most=most)
    return {**schema, "$defs": needed} if needed else schema


def output_schema(operation: models.ApiOperation) -> JsonSchema | None:
    """Return the schema of a successful JSON response, or None if the document declares none.

    Only the nearest definitions are kept: compiling hundreds of them for each of hundreds of
    tools would take minutes.
    """
    if operation.method == "HEAD":
        return None
    response_schemas = [_json_schema(response) for response in _successes(operation.responses)]
    schemas = [schema for schema in response_schemas if schema is not None]
    if not schemas:
        return None
    schemas += _other_outcomes(operation.responses, empty=None in response_schemas)
    different = [schema for number, schema in enumerate(schemas) if schema not in schemas[:number]]
    schema = dict(different[0]) if len(different) == 1 else {"anyOf": different}
    return _with_definitions(schema, operation.response_definitions, most=_MAX_RESPONSE_SCHEMAS)


def _other_outcomes(responses: tuple[models.ApiResponse, ...], *, empty: bool) -> Iterator[JsonSchema]:
    statuses = [response.status for response in responses]
    if empty or "304" in statuses:
        yield _NULL
    if any(status.startswith("3") and status != "304" for status in statuses):
        yield _REDIRECT


def _successes(responses: tuple[models.ApiResponse, ...]) -> Iterator[models.ApiResponse]:
    successes = [response for response in responses if response.status.startswith("2")]
    yield from successes or [response for response in responses if response.status == "default"]


def _json_schema(response: models.ApiResponse) -> JsonSchema | None:
    chosen = choose_media_type(response.content)
    form = None if chosen is None else body_format(chosen)
    schema = response.content[chosen] if chosen is not None and form in ("json", "any") else None
    if not is_object(schema) or (form == "any" and schema.get("format") == "binary"):
        return None
    return schema
