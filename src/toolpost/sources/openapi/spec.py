"""Build the ToolSpec of an operation: schemas, side effects, replay class, description and target."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import Any, NamedTuple

from toolpost.catalog.names import canonical_name
from toolpost.catalog.specs import effects_of_method
from toolpost.contracts.spec import JsonSchema, ToolCategory, ToolSpec, ToolTarget
from toolpost.schema.json_values import AnySchema, is_array, is_object
from toolpost.sources.openapi import models
from toolpost.sources.openapi.naming import shorten
from toolpost.sources.openapi.operations import body_format, choose_media_type

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
    """Return the summary and description of an operation, or its method and path."""
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
    """Return the schema of one argument, as the document has it."""
    schema: JsonSchema = dict(field.schema) if is_object(field.schema) else {}
    if field.description:
        schema["description"] = field.description
    if getattr(field, "deprecated", False):
        schema["deprecated"] = True
    return schema


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
    """Yield the schemas of empty responses and of redirects."""
    statuses = [response.status for response in responses]
    if empty or "304" in statuses:
        yield _NULL
    if any(status.startswith("3") and status != "304" for status in statuses):
        yield _REDIRECT


def _successes(responses: tuple[models.ApiResponse, ...]) -> Iterator[models.ApiResponse]:
    """Yield the 2xx responses, or `default` if there are none."""
    successes = [response for response in responses if response.status.startswith("2")]
    yield from successes or [response for response in responses if response.status == "default"]


def _json_schema(response: models.ApiResponse) -> JsonSchema | None:
    chosen = choose_media_type(response.content)
    form = None if chosen is None else body_format(chosen)
    schema = response.content[chosen] if chosen is not None and form in ("json", "any") else None
    if not is_object(schema) or (form == "any" and schema.get("format") == "binary"):
        return None
    return schema


def _with_definitions(schema: JsonSchema, definitions: Mapping[str, Any], *, most: int | None = None) -> JsonSchema:
    """Add the definitions that the schema references."""
    shared = definitions if isinstance(definitions, models.Definitions) else models.Definitions(dict(definitions))
    needed = shared.collect(schema, most=most)
    return {**schema, "$defs": needed} if needed else schema


BUDGET = 4000
# Tokenizers cut a text where letters, digits and marks meet, and long words into pieces; spaces and underscores go with
# what follows them. Of 1,865 views of real APIs none has more than 1.06 tokens for each of these pieces (o200k_base
# and cl100k_base, as `json.dumps` writes them), and half of them less than 0.83.
_PIECE = re.compile(r"[A-Z]?[a-z]{1,5}|[A-Z]{1,6}|[0-9]{1,3}|[^\sA-Za-z0-9_]{1,3}")
_TOKENS_A_PIECE = 1.1
_LONGEST_PIECE = 7
_DEEPEST = 8
_LENGTHS = (480, 240, 120)
_SHORT = 60
# Arguments get longer descriptions than the properties below them.
_MORE_FOR_ARGUMENTS = 3
_MOST_OPTIONS = 60
_SAME_VALUE = frozenset({"allOf", "anyOf", "oneOf", "dependentSchemas"})
_NOT_SHOWN = frozenset({"examples", "title", "discriminator", "$comment", "contentEncoding", "contentMediaType"})
_LONGEST_DEFAULT = 80


class Detail(NamedTuple):
    """Level of detail: depth, where 1 are the arguments, and the length of descriptions.

    Required properties of required properties are shown down to the depth `required`.
    """

    depth: int
    text: int
    required: int = 0


class _Position(NamedTuple):
    """Position of a subschema: whether it is optional, and its depth."""

    optional: bool
    level: int


_LEAST = Detail(0, 0)
_START = _Position(optional=False, level=0)


def estimate_tokens(schema: JsonSchema) -> int:
    """Estimate the most tokens that a schema costs as `json.dumps` writes it."""
    return math.ceil(len(_PIECE.findall(json.dumps(schema))) * _TOKENS_A_PIECE)


def _is_huge(schema: JsonSchema, budget: int) -> bool:
    """Return whether a schema exceeds the budget for sure, without serializing it."""
    left = budget * _LONGEST_PIECE
    stack: list[Any] = [schema]
    while stack and left > 0:
        node = stack.pop()
        if is_object(node):
            left -= sum(map(len, node)) + len(node)
            stack.extend(node.values())
        elif is_array(node):
            left -= len(node)
            stack.extend(node)
        elif isinstance(node, str):
            left -= len(node)
    return left <= 0


def fit_to_budget(schema: JsonSchema, *, budget: int = BUDGET) -> JsonSchema:
    """Return the schema if it fits the budget, else the most detailed view that does."""
    if not _is_huge(schema, budget) and estimate_tokens(schema) <= budget:
        return schema
    best = _deepest(schema, budget)
    if best is None:
        return _arguments_only(schema, budget)
    detail, view = best
    for text in _LENGTHS:
        wordy = _View(schema, detail._replace(text=text)).render()
        if estimate_tokens(wordy) <= budget:
            return wordy
    return view


def _deepest(schema: JsonSchema, budget: int) -> tuple[Detail, JsonSchema] | None:
    """Return the deepest view with short descriptions, or one without any if there are many arguments.

    Required properties come first: no call is possible without them.
    """
    best = _last_fitting(schema, budget, (_LEAST, Detail(0, _SHORT)))
    needed = _last_fitting(schema, budget, (Detail(1, _SHORT, depth) for depth in range(1, _DEEPEST)))
    if best is None or needed is None:
        return best
    required = needed[0].required
    both = (Detail(depth, _SHORT, max(depth, required)) for depth in range(2, _DEEPEST))
    return _last_fitting(schema, budget, both) or needed


def _last_fitting(schema: JsonSchema, budget: int, details: Iterable[Detail]) -> tuple[Detail, JsonSchema] | None:
    """Return the last of increasingly detailed views that fits the budget."""
    best: tuple[Detail, JsonSchema] | None = None
    for detail in details:
        view = _View(schema, detail).render()
        if estimate_tokens(view) > budget:
            break
        best = detail, view
    return best


def _arguments_only(schema: JsonSchema, budget: int) -> JsonSchema:
    """Return all required arguments and as many optional ones as fit, by name and type."""
    arguments = _View(schema, _LEAST).render().get("properties", {})
    required = set(schema.get("required", ()))
    shown = {name: inner for name, inner in arguments.items() if name in required}
    note = "There are more optional arguments than are shown here."
    short: JsonSchema = {"type": "object", "description": note, "properties": shown, "required": sorted(required)}
    left = budget - estimate_tokens(short)
    for name, inner in arguments.items():
        left -= estimate_tokens({name: inner}) if name not in shown else 0
        if left >= 0:
            shown.setdefault(name, inner)
    return short


class _View:
    """Renders one view; a shared definition is rendered at its required or else shallowest use."""

    def __init__(self, schema: JsonSchema, detail: Detail) -> None:
        self._schema = schema
        self._definitions: dict[str, AnySchema] = schema.get("$defs", {})
        self._detail = detail
        self._waiting: list[tuple[_Position, str]] = []

    def render(self) -> JsonSchema:
        root = {word: value for word, value in self._schema.items() if word != "$defs"}
        view = self._show(root, _START)
        shown: dict[str, AnySchema] = {}
        while self._waiting:
            way, name = heappop(self._waiting)
            if name not in shown:
                definition = self._definitions.get(name, True)
                shown[name] = self._show(definition, way) if is_object(definition) else definition
        return {**view, "$defs": dict(sorted(shown.items()))} if shown else view

    def _show(self, schema: JsonSchema, way: _Position) -> JsonSchema:
        """Render a schema and its subschemas down to the depth shown."""
        needed = _find_required(schema)

        def inner(word: str, part: Any) -> AnySchema:
            if word in _SAME_VALUE:
                return self._part(part, way)
            optional = way.optional or (word == "properties" and id(part) not in needed)
            return self._part(part, _Position(optional, way.level + 1))

        plain = {word: value for word, value in schema.items() if word not in _NOT_SHOWN}
        return self._shorten_words(models.relax(plain, inner), way.level)

    def _part(self, schema: Any, way: _Position) -> AnySchema:
        if not is_object(schema):
            return schema if isinstance(schema, bool) else {}
        name = str(schema.get("$ref", "")).removeprefix(models.DEFINITION_PREFIX)
        if way.level > (self._detail.depth if way.optional else max(self._detail.depth, self._detail.required)):
            return self._stub(schema, name, way.level)
        if name in self._definitions:
            heappush(self._waiting, (way, name))
        return self._show(schema, way)

    def _stub(self, schema: JsonSchema, name: str, level: int) -> JsonSchema:
        """Return the type and a short description of a subschema below the depth shown."""
        definition = self._definitions.get(name)
        merged_schema = {**definition, **schema} if is_object(definition) else schema
        stub: JsonSchema = {word: merged_schema[word] for word in ("type", "description") if word in merged_schema}
        return self._shorten_words(stub, level)

    def _shorten_words(self, schema: JsonSchema, level: int) -> JsonSchema:
        """Shorten the description, enum and default of a schema."""
        text = self._detail.text * (_MORE_FOR_ARGUMENTS if level <= 1 else 1)
        description = shorten(str(schema.pop("description", "")), text) if text else ""
        schema.pop("description", None)
        options = schema.get("enum")
        if is_array(options) and len(options) > _MOST_OPTIONS:
            del schema["enum"]
            description = f"{description} One of {len(options)} values, such as {options[:5]!r}.".strip()
        if "default" in schema and len(json.dumps(schema["default"])) > _LONGEST_DEFAULT:
            del schema["default"]
        return {**schema, "description": description} if description else schema


def _find_required(schema: JsonSchema) -> frozenset[int]:
    """Return the required properties by identity."""
    properties, required = schema.get("properties"), schema.get("required")
    if not is_object(properties) or not is_array(required):
        return frozenset()
    return frozenset(id(properties[name]) for name in required if isinstance(name, str) and name in properties)
