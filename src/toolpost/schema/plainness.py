"""Whether a schema is so small and plain that nothing about its size or references can be wrong.

Most tools have such schemas, and this look at their text takes a tenth of a full check.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from toolpost.contracts.spec import JsonSchema

_encode = json.JSONEncoder(allow_nan=False).encode
_LONGEST = 150_000  # two characters a value at least: far fewer values than are allowed
_DEEPEST = 60
# Every schema opens a bracket. With few references even the worst way to nest them repeats no schema more than
# 3 ** (12 / 3) times, which bounds the work; and schemas lie on top of each other only by these keywords and by
# references, each of them once on any way down.
_MOST_BRACKETS = 4000
_MOST_REFERENCES = 12
_MOST_APPLIED = 80
_REFERENCE = re.compile(r'"\$ref": "([^"]*)"')
_POINTER = re.compile(r"#/(\$defs|definitions)/([\w.-]+)", re.ASCII)
_SPECIAL = re.compile(r'"\$(?:id|anchor|dynamicAnchor|dynamicRef|recursiveRef|recursiveAnchor|schema)"')
_APPLIED = re.compile(r'"(?:allOf|anyOf|oneOf|not|if|then|else|dependentSchemas|dependencies)"')


def is_plain(schema: JsonSchema) -> bool:
    """Whether it is short and shallow, and its few references lead to definitions of its own."""
    try:
        text = _encode(schema)
    except (TypeError, ValueError, RecursionError):
        return False
    if len(text) > _LONGEST or text.count("{") + text.count("[") > _MOST_BRACKETS or _SPECIAL.search(text):
        return False
    references = _REFERENCE.findall(text)
    if len(references) > _MOST_REFERENCES or len(_APPLIED.findall(text)) > _MOST_APPLIED:
        return False
    return all(_leads(schema, reference) for reference in references) and _is_shallow(schema)


def _is_shallow(schema: JsonSchema) -> bool:
    level: list[Any] = [schema]
    for _ in range(_DEEPEST):
        level = [inner for outer in level for inner in _members(outer) if inner.__class__ in _CONTAINERS]
        if not level:
            return True
    return False


_CONTAINERS: frozenset[type] = frozenset({dict, list, tuple})


def _members(container: Any) -> Any:
    return container.values() if container.__class__ is dict else container


def _leads(schema: JsonSchema, reference: str) -> bool:
    found = _POINTER.fullmatch(reference)
    if found is None:
        return False
    definitions = schema.get(found[1])
    return is_object(definitions) and isinstance(definitions.get(found[2]), dict)
