"""How much work it would be to say what is wrong with a value, counted before the engine is asked to."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from toolpost.schema.json_values import is_array, is_object, text_within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolpost.contracts.spec import JsonSchema
    from toolpost.schema.subschemas import Document, Subschema

_BUDGET = 10_000
_MOST_COPIED = 3_000_000  # characters; the engine puts a copy of what is wrong into every fault
_MOST_COPIED_ONCE = 1_000_000
_LISTS = ("enum", "required")


def is_costly(document: Document, instance: Any) -> bool:
    """Whether collecting all faults would take more than a bounded number of steps, or of copies of the value.

    The engine answers yes or no in linear time, but collects the faults of every
    alternative, which for a recursive choice grows exponentially with the depth.
    """
    stack: list[tuple[JsonSchema, Any]] = [(document.root, instance)]
    steps = 0
    while stack:
        schema, value = stack.pop()
        steps += 1 + sum(len(listed) for word in _LISTS if is_array(listed := schema.get(word)))
        for inner in document.applied(schema):
            stack.extend((inner.schema, part) for part in islice(_parts(inner, value), _BUDGET))
            if len(stack) + steps >= _BUDGET:
                return True
    return steps >= _BUDGET or not text_within(_MOST_COPIED // steps, instance)


def is_large(instance: Any) -> bool:
    """Whether even one fault would take long, for the copy of the value in it."""
    return not text_within(_MOST_COPIED_ONCE, instance)


def _parts(inner: Subschema, value: Any) -> Iterator[Any]:
    """The parts of a value that a subschema applies to, or a few more."""
    if inner.place == "here":
        yield value
    elif is_object(value):
        if inner.keyword != "properties":
            yield from value.values()
        elif isinstance(inner.key, str) and inner.key in value:
            yield value[inner.key]
    elif is_array(value):
        yield from value
