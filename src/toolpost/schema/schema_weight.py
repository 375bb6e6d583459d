"""Upper limits of the cost of validating a value against a schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.subschemas import Place, SchemaDocument, Subschema

MAX_WORK = 1_000_000
LARGEST_DIVIDED = 10**15
# In units of the fastest keyword, about ten nanoseconds: comparing one value with another, finding a value among
# others, and dividing numbers exactly, which takes far longer for larger ones.
_COMPARED = 20
_SORTED = 15
_DIVIDED = 150
_LEAST_FACTOR = 1e-9
_HIGHEST_COST = 10**9


class Weight(NamedTuple):
    """Upper limits of the cost of validating one value.

    `work` is how often subschemas may be applied to the same value, `cost` the same in units of the fastest keyword,
    `chain` how many are nested for one value, `height` how many in all. A recursive subschema counts once.
    """

    work: int
    cost: int
    chain: int
    height: int
    recursive: bool


class _Frame(Struct):
    """One schema on the stack, with the sums of its parts so far."""

    where: str
    schema: JsonSchema
    place: Place
    parts: Iterator[Subschema]
    here: int = 1
    below: int = 0
    cost_here: int = 1
    cost_below: int = 0
    chain: int = 0
    height: int = 0

    def add(self, place: Place, weight: Weight) -> None:
        """Add one part: parts for the same value are summed, of those for its members the maximum is used."""
        self.height = max(self.height, weight.height)
        if place == "here":
            self.here += weight.work
            self.cost_here += weight.cost
            self.chain = max(self.chain, weight.chain)
        else:
            self.below = max(self.below, weight.work)
            self.cost_below = max(self.cost_below, weight.cost)

    def weight(self) -> Weight:
        """Return the total, cut off above the limits: a hostile schema must not create huge integers."""
        work = min(self.here + self.below, MAX_WORK + 1)
        cost = min(self.cost_here + self.cost_below, _HIGHEST_COST)
        return Weight(work, cost, self.chain + 1, self.height + 1, recursive=False)


def weigh(document: SchemaDocument) -> Weight:
    """Return the weight of a whole schema."""
    total, recursive = Weight(1, 1, 1, 1, recursive=True), False
    for _, total in weights(document, {}):
        recursive = recursive or total.recursive
    return total._replace(recursive=recursive)


def weights(document: SchemaDocument, done: dict[int, Weight]) -> Iterator[tuple[str, Weight]]:
    """Yield each schema's weight, parts first and the root last; a recursive weight is a reference back up.

    `done` contains the weights of known schemas, by identity.
    """
    stack = [_frame(document, "#", document.root, "here")]
    unfinished = {id(document.root)}
    while stack:
        frame = stack[-1]
        part = next(frame.parts, None)
        if part is None:
            stack.pop()
            unfinished.discard(id(frame.schema))
            done[id(frame.schema)] = weight = frame.weight()
            if stack:
                stack[-1].add(frame.place, weight)
            yield frame.where, weight
        elif id(part.schema) in unfinished:
            once = Weight(1, 1, 1, 1, recursive=True)
            frame.add(part.place, once)
            yield frame.where, once
        elif id(part.schema) in done:
            frame.add(part.place, done[id(part.schema)])
        else:
            unfinished.add(id(part.schema))
            stack.append(_frame(document, location_below(frame.where, part), part.schema, part.place))


def _frame(document: SchemaDocument, where: str, schema: JsonSchema, place: Place) -> _Frame:
    """Build the frame of a schema with the cost of slow keywords: containers in `enum`, `uniqueItems`, `multipleOf`."""
    options, factor = schema.get("enum"), schema.get("multipleOf")
    compared = sum(is_object(one) or is_array(one) for one in options) if is_array(options) else 0
    cost = compared * _COMPARED + (schema.get("uniqueItems") is True) * _SORTED
    if isinstance(factor, int | float):
        cost += _DIVIDED if _LEAST_FACTOR <= factor <= LARGEST_DIVIDED else 20 * _DIVIDED
    return _Frame(where, schema, place, document.applied(schema), cost_here=1 + cost)


def location_below(where: str, inner: Subschema) -> str:
    """Return the JSON Pointer of a subschema."""
    key = str(inner.key)[:80]
    if inner.keyword == "$ref":
        return key
    return f"{where}/{inner.keyword}" if inner.key is None else f"{where}/{inner.keyword}/{key}"
