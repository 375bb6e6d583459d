"""Shorten an input schema to a token budget, for models."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any, NamedTuple

from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import AnySchema, is_array, is_object
from toolpost.sources.openapi.definitions import DEFINITION_PREFIX, relax
from toolpost.sources.openapi.markdown import shorten

BUDGET = 4000
# Tokenizers split a text between letters, digits and punctuation, and long words into pieces; spaces and underscores
# belong to the following piece. Of 1,865 shortened schemas of real APIs, none has more than 1.06 tokens per piece
# (o200k_base and cl100k_base, as `json.dumps` writes them), and half of them have less than 0.83.
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


def _is_huge(schema: JsonSchema, budget: int) -> bool:
    """Return whether a schema certainly exceeds the budget, without serializing it."""
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


def _deepest(schema: JsonSchema, budget: int) -> tuple[Detail, JsonSchema] | None:
    """Return the deepest view with short descriptions, or one without any if there are many arguments.

    Required properties come first: no call is possible without them.
    """
    best = _last_fitting(schema, budget, (Detail(0, 0), Detail(0, _SHORT)))
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
    arguments = _View(schema, Detail(0, 0)).render().get("properties", {})
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


class Detail(NamedTuple):
    """Level of detail: depth, where 1 are the arguments, and the length of descriptions.

    Required properties of required properties are shown down to the depth `required`.
    """

    depth: int
    text: int
    required: int = 0


class _View:
    """Renderer of one view; a shared definition is rendered at its required or else shallowest use."""

    def __init__(self, schema: JsonSchema, detail: Detail) -> None:
        self._schema = schema
        self._definitions: dict[str, AnySchema] = schema.get("$defs", {})
        self._detail = detail
        self._waiting: list[tuple[_Position, str]] = []

    def render(self) -> JsonSchema:
        root = {word: value for word, value in self._schema.items() if word != "$defs"}
        view = self._show(root, _Position(optional=False, level=0))
        shown: dict[str, AnySchema] = {}
        while self._waiting:
            way, name = heappop(self._waiting)
            if name not in shown:
                definition = self._definitions.get(name, True)
                shown[name] = self._show(definition, way) if is_object(definition) else definition
        return {**view, "$defs": dict(sorted(shown.items()))} if shown else view

    def _show(self, schema: JsonSchema, way: _Position) -> JsonSchema:
        needed = _find_required(schema)

        def inner(word: str, part: Any) -> AnySchema:
            if word in _SAME_VALUE:
                return self._part(part, way)
            optional = way.optional or (word == "properties" and id(part) not in needed)
            return self._part(part, _Position(optional, way.level + 1))

        plain = {word: value for word, value in schema.items() if word not in _NOT_SHOWN}
        return self._shorten_words(relax(plain, inner), way.level)

    def _part(self, schema: Any, way: _Position) -> AnySchema:
        if not is_object(schema):
            return schema if isinstance(schema, bool) else {}
        name = str(schema.get("$ref", "")).removeprefix(DEFINITION_PREFIX)
        if way.level > (self._detail.depth if way.optional else max(self._detail.depth, self._detail.required)):
            definition = self._definitions.get(name)
            merged_schema = {**definition, **schema} if is_object(definition) else schema
            stub: JsonSchema = {word: merged_schema[word] for word in ("type", "description") if word in merged_schema}
            return self._shorten_words(stub, way.level)
        if name in self._definitions:
            heappush(self._waiting, (way, name))
        return self._show(schema, way)

    def _shorten_words(self, schema: JsonSchema, level: int) -> JsonSchema:
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


class _Position(NamedTuple):
    """Position of a subschema: whether it is optional, and its depth."""

    optional: bool
    level: int


def _find_required(schema: JsonSchema) -> frozenset[int]:
    properties, required = schema.get("properties"), schema.get("required")
    if not is_object(properties) or not is_array(required):
        return frozenset()
    return frozenset(id(properties[name]) for name in required if isinstance(name, str) and name in properties)


def estimate_tokens(schema: JsonSchema) -> int:
    """Estimate the maximum number of tokens of a schema as `json.dumps` writes it."""
    return math.ceil(len(_PIECE.findall(json.dumps(schema))) * _TOKENS_A_PIECE)
