"""How much work it would be to list every fault of a value, counted before the engine is asked to."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from toolpost.schema.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolpost.contracts.spec import JsonSchema
    from toolpost.schema.subschemas import Document, Subschema

_BUDGET = 30_000


def is_costly(document: Document, instance: Any) -> bool:
    """Whether collecting all faults would take more than a bounded number of steps.

    The engine answers yes or no in linear time, but collects the faults of every
    alternative, which for a recursive choice grows exponentially with the depth.
    """
    stack: list[tuple[JsonSchema, Any]] = [(document.root, instance)]
    for _ in range(_BUDGET):
        if not stack:
            return False
        schema, value = stack.pop()
        for inner in document.applied(schema):
            stack.extend((inner.schema, part) for part in islice(_parts(inner, value), _BUDGET))
            if len(stack) >= _BUDGET:
                return True
    return True


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
