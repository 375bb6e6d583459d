"""The cost of collecting the violations of a value, which can be far higher than that of validating it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import is_array, is_object, text_within
from toolpost.schema.subschemas import SchemaDocument, Subschema

_BUDGET = 10_000
_MAX_COPIED = 3_000_000  # characters; the engine puts a copy of the value into every violation
_MAX_COPIED_ONCE = 1_000_000
_LISTS = ("enum", "required")


def is_costly(document: SchemaDocument, instance: Any) -> bool:
    """Return whether collecting all violations would exceed a limit of steps, or of copies of the value."""
    # Validation takes linear time, but the engine collects the violations of every alternative, whose number grows
    # exponentially with the depth of a recursive choice.
    stack: list[tuple[JsonSchema, Any]] = [(document.root, instance)]
    steps = 0
    while stack:
        schema, value = stack.pop()
        steps += 1 + sum(len(listed) for word in _LISTS if is_array(listed := schema.get(word)))
        for inner in document.applied(schema):
            stack.extend((inner.schema, part) for part in islice(_parts(inner, value), _BUDGET))
            if len(stack) + steps >= _BUDGET:
                return True
    return steps >= _BUDGET or not text_within(_MAX_COPIED // steps, instance)


def is_large(instance: Any) -> bool:
    """Return whether even one violation, which contains a copy of the value, would take long to build."""
    return not text_within(_MAX_COPIED_ONCE, instance)


def _parts(inner: Subschema, value: Any) -> Iterator[Any]:
    """Yield the parts of a value that a subschema applies to, or a few more."""
    if inner.place == "here":
        yield value
    elif is_object(value):
        if inner.keyword != "properties":
            yield from value.values()
        elif isinstance(inner.key, str) and inner.key in value:
            yield value[inner.key]
    elif is_array(value):
        yield from value
