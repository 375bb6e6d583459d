"""Check schemas before they are registered: valid, limited in size and cost, no references to the outside."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import jsonschema_rs
from msgspec import Struct

from toolpost.contracts.errors import ToolSchemaError
from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import PathLink, compact_encoder, is_array, is_object, members
from toolpost.schema.plain_schemas import is_plain_schema
from toolpost.schema.subschemas import (
    Place,
    SchemaDocument,
    SharedDefinitions,
    Subschema,
    definitions_of,
    normalize_draft,
    references,
    subschemas,
    without_definitions,
)

MAX_DEPTH = 64
MAX_NODES = 100_000
MAX_WORK = 1_000_000
# The engine recurses on the C stack; a longer chain of schemas for one value could overflow it.
MAX_CHAIN = 100

# In units of the quickest keyword, about ten nanoseconds: comparing one value with another, finding a value among
# others, and dividing numbers exactly, which takes by far longer for larger ones.
_COMPARED = 20
_SORTED = 15
_DIVIDED = 150
LARGEST_DIVIDED = 10**15
_LEAST_FACTOR = 1e-9
_HIGHEST_COST = 10**9

_SCALARS = (str, int, float, type(None))


def _refuse_retrieval(uri: str) -> Any:
    raise ValueError(f"{uri} is not fetched")


# Without a registry of its own the check of an unknown `$schema` would go out to the network.
_NO_NETWORK = jsonschema_rs.Registry([], retriever=_refuse_retrieval)


def check_schema(
    schema: object,
    *,
    tool_name: str,
    role: Literal["input", "output"] = "input",
    checked: CheckedDefinitions | None = None,
) -> None:
    """Raise ToolSchemaError for a schema that is invalid, too deep, too large, too costly, or refers to the outside.

    With `checked`, definitions that schemas of the same role share are checked once for all.
    """
    if not _is_plain(schema, checked):
        _check_closely(schema, tool_name, role, checked)


def _is_plain(schema: object, checked: CheckedDefinitions | None) -> bool:
    if not is_object(schema):
        return False
    return is_plain_schema(schema) if checked is None else checked.shared.is_plain(schema)


def _check_closely(schema: object, tool_name: str, role: str, checked: CheckedDefinitions | None) -> None:
    text = None if checked is None or not is_object(schema) else checked.shared.text(schema)
    if checked is not None and text is None and is_object(schema) and definitions_of(schema) is not None:
        if role == "input":
            _check_takes_object(schema, tool_name)
        if checked.fits(schema):
            return
    if isinstance(schema, bool):
        return
    if not is_object(schema):
        raise _refusal(tool_name, "#", f"a schema must be an object or a boolean, not {type(schema).__name__}")
    plain = is_small_schema(schema, text)
    if not plain:
        _check_size(schema, tool_name)
    if role == "input":
        _check_takes_object(schema, tool_name)
    _check_legal(schema, tool_name)
    if plain:
        return
    document = SchemaDocument(schema)
    if _check_references(document, tool_name):
        _check_weight(document, tool_name)


class _Part(NamedTuple):
    """Size and references of a part of a schema."""

    values: int
    depth: int
    names: frozenset[str]


class CheckedDefinitions:
    """Check schemas by their parts: the schema itself and each shared definition once."""

    def __init__(self, shared: SharedDefinitions) -> None:
        self.shared = shared
        self._targets: dict[str, Any] = {}
        self._weights: dict[int, Weight] = {}
        self._roots: list[JsonSchema] = []  # kept, so that no other schema gets the identity of a weighed one
        self._usable = True

    def fits(self, schema: JsonSchema) -> bool:
        """Return whether the schema is certainly usable; if not, the whole has to be checked."""
        definitions: Mapping[str, Any] = schema["$defs"]
        parts = [_part(without_definitions(schema)), *(self.shared.once(_part, one) for one in definitions.values())]
        values, depth = len(definitions), 0
        for part in parts:
            if part is None or not part.names <= definitions.keys():
                return False
            values += part.values
            depth = max(depth, part.depth)
        return values <= MAX_NODES and depth + 2 <= MAX_DEPTH and self._is_light(schema, definitions)

    def _is_light(self, schema: JsonSchema, definitions: Mapping[str, Any]) -> bool:
        """Whether the weight is within the limits."""
        if not self._usable:
            return False
        weights: dict[int, Weight] = {}
        # Weights found for other schemas hold where every name means the same as in those.
        if all(self._targets.get(name, one) is one for name, one in definitions.items()):
            weights = self._weights
            self._targets.update(definitions)
            self._roots.append(schema)
        try:
            _check_weight(SchemaDocument(schema, closed=True), "", weights)
        except ToolSchemaError:
            self._usable = weights is not self._weights
            return False
        return True


# Keywords by which a part of a schema gets a name or a dialect of its own.
_NAMING = frozenset(
    {"$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$dynamicRef", "$recursiveRef", "$schema", "$defs"}
)
_DEFINITION = re.compile(r"#/\$defs/([\w.-]+)", re.ASCII)


def _part(schema: Any) -> _Part | None:
    """Measure a part of a schema; None where its meaning depends on the whole."""
    if isinstance(schema, bool):
        return _Part(1, 1, frozenset())
    try:
        _check_size(schema, "")
        _check_legal(schema, "")
    except ToolSchemaError:
        return None
    values, depth, names = 0, 0, set[str]()
    level: list[Any] = [schema]
    while level:
        depth += 1
        values += sum(map(len, level))
        for node in level:
            if is_object(node) and not _add_reference(node, names):
                return None
        level = [inner for outer in level for _, inner in members(outer) if is_object(inner) or is_array(inner)]
    return _Part(values, depth, frozenset(names))


def _add_reference(node: JsonSchema, names: set[str]) -> bool:
    """Add the reference of a schema to `names`; False where it is no definition, or the schema has its own name."""
    if not _NAMING.isdisjoint(node):
        return False
    reference = node.get("$ref")
    if isinstance(reference, str):
        match = _DEFINITION.fullmatch(reference)
        if match is None:
            return False
        names.add(match[1])
    return True


def _refusal(tool_name: str, where: str, problem: str) -> ToolSchemaError:
    return ToolSchemaError(f"Schema of tool {tool_name!r} at {where}: {problem}", tool_name=tool_name)


def _check_size(schema: JsonSchema, tool_name: str) -> None:
    """Limit depth and number of values, also under keywords that are not schemas."""
    level: list[tuple[PathLink | None, Any]] = [(None, schema)]
    nodes = 0
    for _ in range(MAX_DEPTH):
        below: list[tuple[PathLink | None, Any]] = []
        for link, value in level:
            nodes += len(value)
            if nodes > MAX_NODES:
                raise _refusal(tool_name, "#", f"more than {MAX_NODES:,} values")
            below.extend(_containers(link, value, tool_name))
        if not below:
            return
        level = below
    raise _refusal(tool_name, _pointer(level[0][0]), f"nested deeper than {MAX_DEPTH} levels")


def _pointer(link: PathLink | None) -> str:
    return "/".join(["#", *(str(key)[:80] for key in PathLink.path(link)[:30])])


def _containers(link: PathLink | None, value: Any, tool_name: str) -> Iterator[tuple[PathLink, Any]]:
    for key, member in members(value):
        if is_object(member) or is_array(member):
            yield PathLink(link, key), member
        elif not isinstance(member, _SCALARS):
            raise _refusal(tool_name, _pointer(PathLink(link, key)), f"{type(member).__name__} is not JSON")


def _check_takes_object(schema: JsonSchema, tool_name: str) -> None:
    kind = schema.get("type", "object")
    kinds = kind if is_array(kind) else [kind]
    if "object" not in kinds:
        raise _refusal(tool_name, "#/type", f'arguments are an object, so "type" must be "object", not {kind!r}')


def _check_legal(schema: JsonSchema, tool_name: str) -> None:
    try:
        jsonschema_rs.meta.validate(normalize_draft(schema), registry=_NO_NETWORK)
    except jsonschema_rs.ValidationError as exc:
        where = "/".join(["#", *map(str, exc.instance_path)])
        raise _refusal(tool_name, where, exc.message[:300]) from None
    except (ValueError, jsonschema_rs.ReferencingError) as exc:
        raise _refusal(tool_name, "#", str(exc)[:300]) from None


def _check_references(document: SchemaDocument, tool_name: str) -> bool:
    """Check that every reference has a target in the document; return whether there are references."""
    has_reference = False
    stack: list[tuple[str, JsonSchema]] = [("#", document.root)]
    while stack:
        where, schema = stack.pop()
        for reference in references(schema):
            has_reference = True
            if document.target(reference, schema) is None:
                raise _refusal(tool_name, where, _why_unusable(reference))
        stack.extend((_below(where, inner), inner.schema) for inner in subschemas(schema))
    return has_reference


def _why_unusable(reference: str) -> str:
    shown = reference[:200]
    if reference.startswith("#"):
        return f"reference {shown!r} points at nothing in this document"
    return f"reference {shown!r} leaves the document and is never fetched; put its target under $defs"


def _below(where: str, inner: Subschema) -> str:
    key = str(inner.key)[:80]
    if inner.keyword == "$ref":
        return key
    return f"{where}/{inner.keyword}" if inner.key is None else f"{where}/{inner.keyword}/{key}"


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
        """Add one part: parts for the same value add up, of those for its members the heaviest counts."""
        self.height = max(self.height, weight.height)
        if place == "here":
            self.here += weight.work
            self.cost_here += weight.cost
            self.chain = max(self.chain, weight.chain)
        else:
            self.below = max(self.below, weight.work)
            self.cost_below = max(self.cost_below, weight.cost)

    def weight(self) -> Weight:
        """Return the total, cut off above the limits so that a hostile schema cannot grow huge integers."""
        work = min(self.here + self.below, MAX_WORK + 1)
        cost = min(self.cost_here + self.cost_below, _HIGHEST_COST)
        return Weight(work, cost, self.chain + 1, self.height + 1, recursive=False)


_ONCE = Weight(1, 1, 1, 1, recursive=True)


def _check_weight(document: SchemaDocument, tool_name: str, done: dict[int, Weight] | None = None) -> None:
    for where, weight in _weights(document, {} if done is None else done):
        if weight.work > MAX_WORK:
            raise _refusal(tool_name, where, f"expands to more than {MAX_WORK:,} schemas")
        if weight.chain > MAX_CHAIN:
            raise _refusal(tool_name, where, f"a chain of more than {MAX_CHAIN} schemas for one value")


def weigh(document: SchemaDocument) -> Weight:
    """Return the weight of a whole schema."""
    total, recursive = _ONCE, False
    for _, total in _weights(document, {}):
        recursive = recursive or total.recursive
    return total._replace(recursive=recursive)


def _weights(document: SchemaDocument, done: dict[int, Weight]) -> Iterator[tuple[str, Weight]]:
    """Yield each schema's weight, parts first and the root last; a recursive weight is a reference back up.

    `done` holds the weights of known schemas, by identity.
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
            frame.add(part.place, _ONCE)
            yield frame.where, _ONCE
        elif id(part.schema) in done:
            frame.add(part.place, done[id(part.schema)])
        else:
            unfinished.add(id(part.schema))
            stack.append(_frame(document, _below(frame.where, part), part.schema, part.place))


def _frame(document: SchemaDocument, where: str, schema: JsonSchema, place: Place) -> _Frame:
    return _Frame(where, schema, place, document.applied(schema), cost_here=1 + _own_cost(schema))


def _own_cost(schema: JsonSchema) -> int:
    """Return the cost of slow keywords: options of `enum` that are no scalars, `uniqueItems`, `multipleOf`."""
    options, factor = schema.get("enum"), schema.get("multipleOf")
    compared = sum(is_object(one) or is_array(one) for one in options) if is_array(options) else 0
    cost = compared * _COMPARED + (schema.get("uniqueItems") is True) * _SORTED
    if isinstance(factor, int | float):
        cost += _DIVIDED if _LEAST_FACTOR <= factor <= LARGEST_DIVIDED else 20 * _DIVIDED
    return cost


_encode = compact_encoder(allow_nan=False)
_LONGEST = 150_000  # two characters a value at least: far fewer values than are allowed
_DEEPEST = 60
# Every schema opens a bracket. With few references even the worst way to nest them repeats no schema more than
# 3 ** (12 / 3) times, which bounds the work; and schemas lie on top of each other only by these keywords and by
# references, each of them once on any way down.
_MOST_BRACKETS = 4000
_MOST_REFERENCES = 12
_MOST_APPLIED = 80
_REFERENCE = re.compile(r'"\$ref":"([^"]*)"')
_POINTER = re.compile(r"#/(\$defs|definitions)/([\w.-]+)", re.ASCII)
_SPECIAL = re.compile(r'"\$(?:id|anchor|dynamicAnchor|dynamicRef|recursiveRef|recursiveAnchor|schema)"')
_APPLIED = re.compile(r'"(?:allOf|anyOf|oneOf|not|if|then|else|dependentSchemas|dependencies)"')


# Most tools have such schemas, and encoding them takes a tenth of a full check.
def is_small_schema(schema: JsonSchema, text: str | None = None) -> bool:
    """Return whether a schema is so short and shallow, with few references, that it cannot exceed a limit.

    `text` is the schema as compact JSON, where that is known.
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


_CONTAINERS: frozenset[type] = frozenset({dict, list, tuple})


def _members(container: Any) -> Any:
    return container.values() if container.__class__ is dict else container


def _has_definition(schema: JsonSchema, reference: str) -> bool:
    match = _POINTER.fullmatch(reference)
    if match is None:
        return False
    definitions = schema.get(match[1])
    return is_object(definitions) and isinstance(definitions.get(match[2]), dict)
