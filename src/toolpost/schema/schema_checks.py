"""Check schemas before they are registered: valid, limited in size and cost, no external references."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

import jsonschema_rs

from toolpost.contracts.errors import ToolSchemaError
from toolpost.contracts.spec import JsonSchema
from toolpost.schema.drafts import normalize_draft
from toolpost.schema.json_values import PathLink, is_array, is_object, members
from toolpost.schema.plain_schemas import is_plain_schema
from toolpost.schema.schema_weight import MAX_WORK, Weight, location_below, weights
from toolpost.schema.shared_definitions import SharedDefinitions, definitions_of, without_definitions
from toolpost.schema.small_schemas import is_small_schema
from toolpost.schema.subschemas import SchemaDocument, references, subschemas

MAX_DEPTH = 64
MAX_NODES = 100_000
# The engine recurses on the C stack; a longer chain of schemas for one value could overflow it.
MAX_CHAIN = 100
# Keywords that give a part of a schema its own name or dialect.
_NAMING = frozenset(
    {"$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$dynamicRef", "$recursiveRef", "$schema", "$defs"}
)
_DEFINITION = re.compile(r"#/\$defs/([\w.-]+)", re.ASCII)
_SCALARS = (str, int, float, type(None))


def check_schema(
    schema: object,
    *,
    tool_name: str,
    role: Literal["input", "output"] = "input",
    checked: CheckedDefinitions | None = None,
) -> None:
    """Raise ToolSchemaError for a schema that is invalid, too deep, too large, too costly, or has external references.

    With `checked`, definitions that schemas of the same role share are checked only once.
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
        self._roots: list[JsonSchema] = []  # the reference reserves the id() of each
        self._usable = True

    def fits(self, schema: JsonSchema) -> bool:
        """Return whether the schema is certainly usable; otherwise it must be checked completely."""
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
        """Return whether the weight is within the limits."""
        if not self._usable:
            return False
        weights: dict[int, Weight] = {}
        # The weights of other schemas are valid if every name has the same definition in them.
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


def _part(schema: Any) -> _Part | None:
    """Measure a part of a schema; None if its meaning depends on the whole schema."""
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
    """Add the reference of a schema to `names`; False if it is not a definition, or the schema has its own name."""
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
        jsonschema_rs.meta.validate(normalize_draft(schema), registry=_offline_registry())
    except jsonschema_rs.ValidationError as exc:
        where = "/".join(["#", *map(str, exc.instance_path)])
        raise _refusal(tool_name, where, exc.message[:300]) from None
    except (ValueError, jsonschema_rs.ReferencingError) as exc:
        raise _refusal(tool_name, "#", str(exc)[:300]) from None


@cache
def _offline_registry() -> jsonschema_rs.Registry:
    """Return a registry that fetches nothing; without one, an unknown `$schema` would be fetched from the network."""

    def refuse(uri: str) -> Any:
        raise ValueError(f"{uri} is not fetched")

    return jsonschema_rs.Registry([], retriever=refuse)


def _check_references(document: SchemaDocument, tool_name: str) -> bool:
    """Check that every reference has a target in the document; return whether there are references."""
    has_reference = False
    stack: list[tuple[str, JsonSchema]] = [("#", document.root)]
    while stack:
        where, schema = stack.pop()
        for reference in references(schema):
            has_reference = True
            if document.target(reference, schema) is None:
                problem = "leaves the document and is never fetched; put its target under $defs"
                if reference.startswith("#"):
                    problem = "points at nothing in this document"
                raise _refusal(tool_name, where, f"reference {reference[:200]!r} {problem}")
        stack.extend((location_below(where, inner), inner.schema) for inner in subschemas(schema))
    return has_reference


def _check_weight(document: SchemaDocument, tool_name: str, done: dict[int, Weight] | None = None) -> None:
    for where, weight in weights(document, {} if done is None else done):
        if weight.work > MAX_WORK:
            raise _refusal(tool_name, where, f"expands to more than {MAX_WORK:,} schemas")
        if weight.chain > MAX_CHAIN:
            raise _refusal(tool_name, where, f"a chain of more than {MAX_CHAIN} schemas for one value")
