"""Recognize small schemas, which need no complete check."""

from __future__ import annotations

import re
from typing import Any

from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import compact_encoder, is_object

_encode = compact_encoder(allow_nan=False)
_LONGEST = 150_000  # at least two characters per value: far fewer values than are allowed
_DEEPEST = 60
# Every schema opens a bracket. With few references even the worst nesting repeats no schema more than 3 ** (12 / 3)
# times, which limits the work. Schemas apply to the same value only by these keywords and by references, each at most
# once on any path.
_MOST_BRACKETS = 4000
_MOST_REFERENCES = 12
_MOST_APPLIED = 80
_REFERENCE = re.compile(r'"\$ref":"([^"]*)"')
_POINTER = re.compile(r"#/(\$defs|definitions)/([\w.-]+)", re.ASCII)
_SPECIAL = re.compile(r'"\$(?:id|anchor|dynamicAnchor|dynamicRef|recursiveRef|recursiveAnchor|schema)"')
_APPLIED = re.compile(r'"(?:allOf|anyOf|oneOf|not|if|then|else|dependentSchemas|dependencies)"')
_CONTAINERS: frozenset[type] = frozenset({dict, list, tuple})


def is_small_schema(schema: JsonSchema, text: str | None = None) -> bool:
    """Return whether a schema is so short and shallow, with few references, that it cannot exceed a limit.

    Most tools have such schemas, and encoding them takes a tenth of the time of a complete check. `text` is the schema
    as compact JSON, if known.
    """
    if text is None:
        try:
            text = _encode(schema)
        except (TypeError, ValueError, RecursionError):
            return False
    brackets = text.count("{") + text.count("[")
    if len(text) > _LONGEST or brackets > _MOST_BRACKETS or _SPECIAL.search(text):
        return False
    references = _REFERENCE.findall(text)
    if len(references) > _MOST_REFERENCES or len(_APPLIED.findall(text)) > _MOST_APPLIED:
        return False
    shallow = brackets <= _DEEPEST or _is_shallow(schema)
    return shallow and all(_has_definition(schema, reference) for reference in references)


def _is_shallow(schema: JsonSchema) -> bool:
    level: list[Any] = [schema]
    for _ in range(_DEEPEST):
        level = [inner for outer in level for inner in _members(outer) if inner.__class__ in _CONTAINERS]
        if not level:
            return True
    return False


def _members(container: Any) -> Any:
    return container.values() if container.__class__ is dict else container


def _has_definition(schema: JsonSchema, reference: str) -> bool:
    match = _POINTER.fullmatch(reference)
    if match is None:
        return False
    definitions = schema.get(match[1])
    return is_object(definitions) and isinstance(definitions.get(match[2]), dict)
